"""Writes the calibration text beside the bundled model: what the model itself says about subjects.

Usage: tools/make_calibration.py TESSERA_BINARY
Text that a model draws from its own distribution has the inputs its layers see in use, and carries
no other text's licence. Subjects and seeds are fixed; the text depends on the instruction set only.
"""
# SPDX-License-Identifier: MIT

import subprocess
import sys

from source_files import REPOSITORY

MODEL = REPOSITORY / "models" / "tessera-13m"
TOKENS = 1000
SUBJECTS = (
    "The history of the city", "Water is", "The river flows", "In mathematics, a group",
    "The football club", "The band released", "He was born in", "She studied at the university",
    "The railway station", "The species is found in", "During the Second World War", "The film",
    "The church was built", "The village", "A chemical element", "The computer", "The battle of",
    "The president of the", "The island", "The novel", "In physics, energy", "The species of bird",
    "The company was founded", "The museum", "The mountain", "The language is spoken", "The school",
    "The game was played", "The king", "The disease", "The airport", "The art of painting")


def main():
    (binary,) = sys.argv[1:]
    texts = []
    for seed, subject in enumerate(SUBJECTS):
        done = subprocess.run(
            [binary, "run", MODEL, subject, "--device", "cpu", "--dtype", "f32", "-n", str(TOKENS),
             "--temperature", "1", "--seed", str(seed), "--ignore-eos"],
            capture_output=True, text=True, check=True)
        texts.append(subject + done.stdout.strip("\n"))
    path = MODEL / "calibration.txt"
    path.write_text("\n".join(texts) + "\n")
    print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
