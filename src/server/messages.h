// Conversations: the field `messages`, as chat templates read it.
// SPDX-License-Identifier: MIT
#pragma once

#include <vector>

#include "server/json_fields.h"
#include "tessera/text/chat_template.h"

namespace tessera::server {

// Refuses what is no list of messages. Arguments of earlier tool calls, which clients send as the
// text of a JSON object, become the object, because templates expect that.
std::vector<ChatMessage> read_messages(Fields& fields);

}  // namespace tessera::server
