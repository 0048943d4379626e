# lm-evaluation-harness asks the bundled model, and finds what `tessera eval` finds.
# SPDX-License-Identifier: MIT
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tessera

pytest.importorskip("lm_eval")
ROOT = Path(__file__).resolve().parents[2]
LIMIT = 24
SUBJECTS = ["water", "music", "the sun", "a river", "history", "a city", "iron", "the moon"]
WORDS = ["a kind of metal", "part of the night sky", "a large town", "a liquid", "a star",
         "the study of the past", "sound in time", "flowing water"]
GOLD = [3, 6, 4, 7, 5, 2, 0, 1]


@pytest.fixture(scope="module")
def questions(tmp_path_factory):
    """ARC's format; of the data beside the checkout if it is there, else made up."""
    path = tmp_path_factory.mktemp("eval") / "questions.jsonl"
    data = ROOT.parent / "shared" / "data" / "eval" / "arc_challenge.jsonl"
    if data.exists():
        lines = data.read_text().splitlines()[:LIMIT]
    else:
        lines = [json.dumps({"query": f"Question: What is {subject}?", "gold": gold,
                             "choices": [WORDS[(i + k) % 8] for k in range(8)]})
                 for i, subject in enumerate(SUBJECTS)
                 for gold in [(GOLD[i] - i) % 8]]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def model():
    import tessera.lm_eval

    return tessera.lm_eval.TesseraLM(device="cpu", dtype="f32", max_length=512)


def evaluate(model, questions, **more):
    os.environ["HF_DATASETS_OFFLINE"] = os.environ["HF_HUB_OFFLINE"] = "1"
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.evaluator import evaluate as run

    task = ConfigurableTask(config={
        "task": "questions", "dataset_path": "json", "output_type": "multiple_choice",
        "dataset_kwargs": {"data_files": {"test": str(questions)}}, "test_split": "test",
        "doc_to_text": "{{query}}\nAnswer:", "doc_to_choice": "{{choices}}",
        "doc_to_target": "{{gold}}", "target_delimiter": " ",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}], **more,
    })
    return run(model, {"questions": task}, log_samples=True, bootstrap_iters=0)


def test_the_harness_finds_what_eval_finds(model, questions, monkeypatch, tmp_path):
    binary = os.environ.get("TESSERA_BINARY")
    if not binary:
        pytest.skip("TESSERA_BINARY does not name the program tessera")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    found = evaluate(model, questions)
    command = [binary, "eval", "arc", tessera.default_model(), "--data", str(questions), "--json",
               "--device", "cpu", "--dtype", "f32", "--context", "512"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)
    theirs = found["results"]["questions"]
    assert ours["questions"] == len(found["samples"]["questions"])
    assert theirs["acc,none"] == pytest.approx(ours["acc"])
    assert theirs["acc_norm,none"] == pytest.approx(ours["acc_norm"])


class Asked:
    def __init__(self, *args):
        self.args = args


def test_log_likelihoods_are_those_of_score(model):
    context, text = "The history of", " mathematics"
    ((total, _),) = model.loglikelihood([Asked(context, text)], disable_tqdm=True)
    (score,) = model.llm.score(text, context=context)
    assert total == pytest.approx(score.total, abs=1e-3)
    greedy = model.llm.generate(context, temperature=0, max_tokens=3)[0]
    (answer,) = model._loglikelihood_tokens(
        [(None, model.tok_encode(context), greedy.tokens)])
    assert answer[1] and not model.loglikelihood([Asked(context, text)], disable_tqdm=True)[0][1]


def test_an_empty_context_and_whole_texts(model):
    text = "Water is a liquid. " * 60  # longer than the context
    (rolled,) = model.loglikelihood_rolling([Asked(text)])
    tokens = model.tok_encode(text, add_special_tokens=False)
    assert len(tokens) > 60 and rolled < -len(tokens) / 10
    ((alone, _),) = model.loglikelihood([Asked("", "Water is")], disable_tqdm=True)
    assert alone == pytest.approx(model.llm.score("Water is")[0].total, abs=1e-3)


def test_generates_until_a_text(model):
    whole, cut = model.generate_until([
        Asked("The history of", {"until": [], "max_gen_toks": 12}),
        Asked("The history of", {"until": ["e"], "max_gen_toks": 12, "do_sample": False})])
    assert cut == whole[: whole.index("e")]


def test_the_command_line_knows_the_model():
    environment = dict(os.environ, PYTHONPATH=str(ROOT / "python"))
    probe = "import tessera.lm_eval\nfrom lm_eval.api.registry import get_model\n"
    probe += "print(get_model('tessera').__name__)"
    done = subprocess.run(
        [sys.executable, "-B", "-c", probe], capture_output=True, text=True, env=environment)
    assert done.stdout.strip() == "TesseraLM", done.stderr
