// `tessera serve` in a build without the server.
// SPDX-License-Identifier: MIT
#include "apps/options.h"
#include "apps/verbs.h"

namespace tessera::apps {

void add_serve(CLI::App& app, int&) {
  Verb verb(app, "serve", "Serves the OpenAI API; this build has no server");
  verb.take_anything();
  verb.on_run([] {
    throw UsageError(
        "this build has no server; `make serve` builds one, as does TESSERA_SERVER=ON");
  });
}

}  // namespace tessera::apps
