# The tokenizer and the chat template of a loaded model.
# SPDX-License-Identifier: MIT
"""LLM.tokenizer."""

from __future__ import annotations

import ctypes
from typing import Any, Callable, ContextManager, Dict, List, Optional, Sequence, Union

from ._engine_types import CEngineInfo
from ._generation import check, int32_array, to_json, utf8
from ._library import lib
from ._results import Message


def _all_of(kind: Any, room: int, call: Callable[[Any, int, Any], int]) -> Any:
    """The array that a C function writes: called again if there was not enough room for it."""
    count = ctypes.c_int64(room)
    while True:
        room = max(count.value, 1)
        array = (kind * room)()
        check(call(ctypes.addressof(array), room, ctypes.addressof(count)))
        if count.value <= room:
            return array[: count.value]


class Tokenizer:
    """Text to token ids and back, as the model's tokenizer.json says."""

    def __init__(self, using: Callable[[], ContextManager[int]], info: CEngineInfo):
        self._using = using
        self.vocab_size: int = info.vocab
        self.has_chat_template = bool(info.has_chat_template)
        self.bos_token_id: Optional[int] = None if info.bos_token < 0 else info.bos_token
        self.eos_token_id: Optional[int] = None if info.eos_token < 0 else info.eos_token

    def encode(
        self, text: str, *, add_special_tokens: bool = True, allow_special: bool = False
    ) -> List[int]:
        """The ids of a text, after the tokens that come before every text unless told otherwise.

        allow_special: control tokens spelled out in it, such as "<|eot_id|>", count as such.
        """
        data = utf8(text, "encode: text")
        with self._using() as engine:
            return _all_of(
                ctypes.c_int32,
                len(data) + 8,
                lambda array, room, count: lib.engine_encode(
                    engine, data, len(data), add_special_tokens, allow_special, array, room, count
                ),
            )

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = False) -> str:
        """The text of ids; an incomplete character becomes U+FFFD."""
        ids = int32_array(tokens, "decode: token")
        with self._using() as engine:
            text = _all_of(
                ctypes.c_char,
                8 * len(tokens) + 8,
                lambda array, room, count: lib.engine_decode(
                    engine, ids, len(tokens), not skip_special_tokens, array, room, count
                ),
            )
        return text.decode()

    def token(self, token: int) -> str:
        """The entry of one id in the vocabulary, as the file has it; "" for an unused id."""
        with self._using() as engine:
            text = _all_of(
                ctypes.c_char,
                64,
                lambda array, room, count: lib.engine_token(engine, token, array, room, count),
            )
        return text.decode(errors="replace")

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        *,
        tokenize: bool = True,
        add_generation_prompt: bool = True,
        tools: Optional[Sequence[Dict[str, Any]]] = None,
        **variables: Any,
    ) -> Union[List[int], str]:
        """A conversation as the model reads it: as token ids, or with tokenize=False as text."""
        given = to_json(list(messages), "apply_chat_template: messages")
        if tools is not None:
            variables["tools"] = list(tools)
        more = to_json(variables, "apply_chat_template: variables") if variables else None
        function = lib.engine_encode_chat if tokenize else lib.engine_render
        with self._using() as engine:
            found = _all_of(
                ctypes.c_int32 if tokenize else ctypes.c_char,
                2 * len(given) + 1024,
                lambda array, room, count: function(
                    engine, given, more, add_generation_prompt, array, room, count
                ),
            )
        return found if tokenize else found.decode()
