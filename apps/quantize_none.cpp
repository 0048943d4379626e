// `tessera quantize` in a build without the quantisers.
// SPDX-License-Identifier: MIT
#include "apps/options.h"
#include "apps/verbs.h"

namespace tessera::apps {

void add_quantize(CLI::App& app, int&) {
  Verb verb(app, "quantize", "Quantises a checkpoint; this build has no quantisers");
  verb.take_anything();
  verb.on_run([] {
    throw UsageError(
        "this build has no quantisers; `make quantize` builds them, as does TESSERA_QUANTIZE=ON");
  });
}

}  // namespace tessera::apps
