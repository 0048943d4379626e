// TESSERA_UNROLL: fully unrolls the loop that follows, in a form the formatter keeps in place.
// SPDX-License-Identifier: MIT
#pragma once

#define TESSERA_UNROLL _Pragma("unroll")
