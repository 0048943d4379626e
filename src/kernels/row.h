// A row: one compiled kernel, what it takes and how to launch it. Dispatch, supports(), the tests,
// the benches and the documents all read the same tables of rows.
// SPDX-License-Identifier: MIT
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "core/library.h"
#include "tessera/core/context.h"
#include "tessera/core/dtype.h"

namespace tessera {

// The element types a compiled kernel is for; key_of(args) makes the same for a call.
struct RowKey {
  DType in;
  DType out;

  bool operator==(const RowKey&) const = default;
};

template <class Args>
struct Row {
  std::string_view op;  // "rms_norm"
  Library library;
  RowKey key;
  void (*launch)(const Args&, const Context&);
  std::string_view label = {};             // stands for the dtypes in the name, where given
  bool (*accepts)(const Args&) = nullptr;  // a condition beyond the key; null: none
  bool is_batch_invariant = true;
  bool (*yields)(const Args&) = nullptr;  // where a vendor's row, if there is one, is faster

  // "rms_norm_bf16_e4m3", "rms_norm_sm90_bf16".
  std::string name() const {
    std::string text(op);
    if (library == Library::sm90) text += "_sm90";
    text += '_';
    if (!label.empty()) return text += label;
    text += tessera::name(key.in);
    if (key.out != key.in) (text += '_') += tessera::name(key.out);
    return text;
  }
  bool takes(const Args& args, RowKey args_key) const {
    return key == args_key && (accepts == nullptr || accepts(args));
  }
};

}  // namespace tessera
