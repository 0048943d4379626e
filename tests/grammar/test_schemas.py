"""Random schemas: every text drawn under one parses and is valid, by the jsonschema package.

Usage: test_schemas.py SAMPLES_PROGRAM [NUM_SCHEMAS]
The program is tessera_schema_samples. 300 schemas unless told otherwise; 10000 on demand.
Exits with 77, which ctest takes for a skip, where jsonschema is not installed.
"""
# SPDX-License-Identifier: MIT

import json
import random
import subprocess
import sys

NUM_SAMPLES = 4
FORMATS = ["date", "time", "date-time", "uuid", "email", "ipv4"]


class SchemaMaker:
    """Schemas of every supported kind, nested up to a depth."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self, depth=3):
        makers = [self.string, self.integer, self.number, self.simple, self.enum]
        if depth > 0:
            makers += [self.object, self.object, self.array, self.tuple, self.any_of, self.all_of]
        return self.random.choice(makers)(depth)

    def name(self):
        return self.random.choice(["a", "b", "ab", "name", "é", "x y", "q\"uote", "list", "n", "z"])

    def string(self, _):
        kind = self.random.randrange(4)
        if kind == 0:
            return {"type": "string", "format": self.random.choice(FORMATS)}
        if kind == 1:
            pattern = self.random.choice(["^[a-z]{2,4}$", "^\\d+-\\w*$", "x", "^(a|bc)+",
                                          "^[^\"]{1,3}$", "\\s\\S$", "^.{2}$"])
            return {"type": "string", "pattern": pattern}
        least = self.random.randrange(4)
        return {"type": "string", "minLength": least, "maxLength": least + self.random.randrange(6)}

    def integer(self, _):
        low = self.random.randint(-2000, 2000)
        schema = {"type": "integer"}
        if self.random.random() < 0.7:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.7:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = \
                low + 2 + self.random.randrange(500)
        return schema

    def number(self, _):
        low = round(self.random.uniform(-50, 50), self.random.randrange(4))
        schema = {"type": "number"}
        if self.random.random() < 0.6:
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.random.random() < 0.6:
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = \
                round(low + self.random.uniform(1, 100), 2)
        return schema

    def simple(self, _):
        return {"type": self.random.choice(["boolean", "null", "string", ["null", "integer"]])}

    def enum(self, _):
        values = ["red", 3, -1.5, None, True, ["x"], {"k": "v"}, "\"\\\n"]
        return self.random.choice([{"enum": self.random.sample(values, 3)},
                                   {"const": self.random.choice(values)}])

    def object(self, depth):
        names = sorted({self.name() for _ in range(self.random.randrange(5))})
        self.random.shuffle(names)
        schema = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names},
                  "required": [n for n in names if self.random.random() < 0.5]}
        extra = self.random.randrange(3)
        if extra == 0:
            schema["additionalProperties"] = False
        if extra == 1:
            schema["additionalProperties"] = self.schema(0)
        return schema

    def array(self, depth):
        least = self.random.randrange(3)
        schema = {"type": "array", "items": self.schema(depth - 1), "minItems": least}
        if self.random.random() < 0.8:
            schema["maxItems"] = least + self.random.randrange(3)
        return schema

    def tuple(self, depth):
        prefix = [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]
        schema = {"type": "array", "prefixItems": prefix,
                  "minItems": self.random.randrange(len(prefix) + 1)}
        if self.random.random() < 0.5:
            schema["items"] = self.random.choice([False, self.schema(0)])
        return schema

    def any_of(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.random.randint(1, 3))]}

    def all_of(self, depth):
        def part(name):
            return {"type": "object", "properties": {name: self.schema(depth - 1)},
                    "required": [name]}
        return {"allOf": [part("left"), part("right")]}

    def document(self):
        """A schema, sometimes one that refers to itself."""
        if self.random.random() > 0.2:
            return self.schema()
        node = {"type": "object", "properties": {
            "value": self.schema(1),
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2}},
            "required": ["value"]}
        return {"$defs": {"node": node}, "$ref": "#/$defs/node"}


def main():
    program = sys.argv[1]
    num_schemas = int(sys.argv[2]) if len(sys.argv) > 2 else 300
    try:
        import jsonschema
    except ImportError:
        print("skipped: the Python package jsonschema is not installed")
        return 77
    maker = SchemaMaker(1)
    schemas = [maker.document() for _ in range(num_schemas)]
    lines = "".join(json.dumps(schema, ensure_ascii=False) + "\n" for schema in schemas)
    run = subprocess.run([program, str(NUM_SAMPLES), "1"], input=lines.encode(), check=True,
                         stdout=subprocess.PIPE)
    blocks = run.stdout.decode().split("--\n")[:-1]
    if len(blocks) != num_schemas:
        print(f"{len(blocks)} blocks for {num_schemas} schemas")
        return 1
    num_texts = num_refused = num_empty = num_bad = 0
    for schema, block in zip(schemas, blocks):
        texts = [line for line in block.split("\n") if line]
        if texts and texts[0].startswith("refused"):
            num_refused += 1
            print(f"{texts[0]}\n  {json.dumps(schema, ensure_ascii=False)}")
            continue
        num_empty += 0 if texts else 1
        validator = jsonschema.Draft202012Validator(
            schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
        for text in texts:
            num_texts += 1
            output = json.loads(text)
            try:
                validator.validate(json.loads(output))
            except (ValueError, jsonschema.ValidationError) as error:
                num_bad += 1
                print(f"not valid: {output}\n  {json.dumps(schema, ensure_ascii=False)}\n  "
                      f"{str(error).splitlines()[0]}")
    print(f"{num_schemas} schemas: {num_texts} texts, {num_bad} not valid; {num_refused} schemas "
          f"refused, {num_empty} without a finished text")
    is_sound = num_bad == 0 and num_refused == 0 and num_empty <= num_schemas // 20
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
