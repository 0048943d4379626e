// A tokenizer for models with random weights, which have none of their own.
// SPDX-License-Identifier: MIT
#pragma once

#include <cstdint>

#include "tessera/text/tokenizer.h"

namespace tessera::apps {

// Ids 0 to 255 are the bytes, which every text is made of; id 300 is the text " w300", so that
// whatever such a model generates can be shown. Needs a vocabulary of at least 256 ids.
Tokenizer make_shape_tokenizer(int64_t vocab);

}  // namespace tessera::apps
