# Who may ask what, and how much.
# SPDX-License-Identifier: MIT
import json
import os
import subprocess

from conftest import MODEL, REPOSITORY, serving, start_long

PUBLIC = {"/", "/health"}


def test_every_route_but_the_public_ones_needs_a_key(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# a comment\nsecret-one\n\nsecret-two 1\n")
    with serving("--api-keys", keys) as one:
        good = {"Authorization": "Bearer secret-one"}
        paths = one.call("GET", "/openapi.json", headers=good)[1]["paths"]
        assert len(paths) >= 11
        for path, operations in paths.items():
            method = next(iter(operations)).upper()
            path = path.replace("{id}", "tessera-13m")
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "secret-one"},
                            {"Authorization": "Bearer secret-on"}, {"Authorization": "Bearer "},
                            {"Authorization": "Bearer secret-oneX"}):
                status, answer = one.call(method, path, "{}", headers)
                if path in PUBLIC:
                    assert status == 200, path
                else:
                    assert status == 401 and answer["error"]["code"] == "invalid_api_key", path
            assert one.call(method, path, "{}", good)[0] in (200, 400), path
        body = json.dumps({"prompt": "The", "max_tokens": 2})
        assert one.call("POST", "/v1/completions", body, good)[0] == 200
        assert "secret" not in one.errors()


def test_a_key_has_a_limit_of_its_own(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("wide\nnarrow 1\n")
    narrow, wide = ({"Authorization": "Bearer " + name} for name in ("narrow", "wide"))
    with serving("--api-keys", keys) as one:
        long = one.connect()
        body = {"prompt": "The", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        long.request("POST", "/v1/completions", json.dumps(body), narrow)
        assert long.getresponse().status == 200
        small = {"prompt": "The", "max_tokens": 1}
        status, headers, text = one.call_raw("POST", "/v1/completions", small, narrow)
        assert status == 429 and headers["Retry-After"] == "1" and b"rate_limit" in text
        assert one.call("POST", "/v1/completions", small, wide)[0] == 200
        long.close()
        one.wait_for(lambda: one.call("POST", "/v1/completions", small, narrow)[0] == 200)


def test_it_listens_on_the_loopback_interface_unless_told(server):
    with open(f"/proc/{server.process.pid}/net/tcp") as table:
        bound = [line.split()[1] for line in table.readlines()[1:] if line.split()[3] == "0A"]
    port = f"{server.port:04X}"
    assert [one.split(":")[0] for one in bound if one.endswith(":" + port)] == ["0100007F"]


def test_a_server_open_to_all_says_so():
    with serving("--host", "0.0.0.0") as one:
        assert "--api-keys" in one.errors()


def test_pages_of_other_sites_are_refused_unless_listed():
    body = json.dumps({"prompt": "The", "max_tokens": 1})
    good, evil = "https://good.example", "https://evil.example"
    with serving("--cors-origin", good) as one:
        status, headers, _ = one.call_raw("POST", "/v1/completions", body, {"Origin": good})
        assert status == 200 and headers["Access-Control-Allow-Origin"] == good
        status, headers, _ = one.call_raw("POST", "/v1/completions", body, {"Origin": evil})
        assert status == 403 and "Access-Control-Allow-Origin" not in headers
        headers = one.call_raw("GET", "/v1/models", headers={"Origin": evil})[1]
        assert "Access-Control-Allow-Origin" not in headers
        own = f"http://127.0.0.1:{one.port}"
        assert one.call("POST", "/v1/completions", body, {"Origin": own})[0] == 200
        asked = {"Origin": good, "Access-Control-Request-Method": "POST"}
        status, headers, _ = one.call_raw("OPTIONS", "/v1/completions", headers=asked)
        assert status == 204 and "POST" in headers["Access-Control-Allow-Methods"]


def test_without_a_list_no_origin_is_allowed(server):
    headers = server.call_raw("OPTIONS", "/v1/completions", headers={"Origin": "null"})[1]
    assert not [name for name in headers if name.startswith("Access-Control")]


def test_wrong_settings_are_refused_before_weights_are_read(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")

    def fails(*flags):
        done = subprocess.run([os.environ["TESSERA_BINARY"], "serve", str(MODEL), *map(str, flags)],
                              capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
        assert done.returncode in (1, 2) and done.stdout == ""
        assert done.stderr.count("\n") == 1
        return done.stderr

    assert "has no keys" in fails("--api-keys", empty)
    assert "--tls-key" in fails("--tls-cert", empty)
    assert "no certificate" in fails("--tls-cert", empty, "--tls-key", empty)
    assert "--port" in fails("--port", "70000")
    assert "--host" in fails("--host", "nowhere.example")
    assert "did you mean --port" in fails("--prot", "1")
    with serving() as one:
        assert f"port {one.port}" in fails("--port", one.port)
        long = start_long(one, 20)
        assert long.getresponse().status == 200
        long.close()
