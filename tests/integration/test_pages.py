"""The commands of README, tutorials and how-to pages, typed in their order, page after page."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from integration.support.pages import PASSWORD, page, reader, section
from integration.support.programs import need

pytestmark = pytest.mark.timeout(600)


def test_readme_then_first_broker_then_first_cluster(tmp_path: Path) -> None:
    with reader(tmp_path) as person:
        person.read(section(page("README.md"), "## Use it"))
        assert "fleet/7/temperature 21.5" in person.said
        assert "flockmq_" in person.said, "metrics"
        person.read(page("docs/tutorial/first-broker.md"))
        assert "plant/7/temperature 22.5" in person.said
        person.said = ""
        person.read(page("docs/tutorial/first-cluster.md"))
        assert re.search(r"n3@127.0.0.1 +(suspect|dead|alive)", person.said)
        assert "Route[t/#]" in person.said


def test_durable_topics_with_a_broker_before_and_after(tmp_path: Path) -> None:
    """What README's own order did: a broker, a cluster, the broker again; each at the same address."""
    with reader(tmp_path) as person:
        person.type("flockmq start --allow-anonymous\n")
        person.type("flockmq status\n")
        person.stop("start")
        person.read(page("docs/tutorial/durable-topics.md"))
        assert "plant/7/temperature 23.5" in person.said
        assert '"payload"' in person.said, "records over HTTP"
        person.type("flockmq start --allow-anonymous\n")
        assert "flockmq@127.0.0.1" in person.type("flockmq status\n")


def test_share_work(tmp_path: Path) -> None:
    need("mosquitto_sub")
    with reader(tmp_path) as person:
        person.read(page("docs/tutorial/share-work.md"))
        handled = set(re.findall(r"handled orders/eu/([1-6]) order", person.said))
        assert len(handled) == 5, "all but the one that was acknowledged by hand"
        assert "order 9" in person.said, "over MQTT"
        assert re.search(r"0:0 .* 1  orders/eu/7  This is no order.  what is this\?", person.said)
        assert "handled orders/eu/7 what is this?" in person.said, "redriven"


def test_secure_a_broker(tmp_path: Path) -> None:
    text = page("docs/how-to/secure-a-broker.md")
    shell = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
    rules = re.search(r"^```toml\n# /etc/flockmq/acl.toml\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert rules is not None
    with reader(tmp_path) as person:
        (person.files / "acl.toml").write_text(rules[1])
        security = re.findall(
            r"^```toml\n(?:# [^\n]*\n)?(\[security\]\n(?:password_file|acl_file).*?)^```$", text, re.S | re.M
        )
        assert len(security) == 2
        merged = "[security]\n" + "".join(one.removeprefix("[security]\n") for one in security)
        tomllib.loads(merged)
        config = person.files / "flockmq.toml"
        config.write_text(merged.replace("/etc/flockmq", str(person.files)))
        first, moving, registering = shell.findall(text)
        person.type(f"PASSWORD={PASSWORD}\n{first}")
        person.type("flockmq start --config /etc/flockmq/flockmq.toml\n")
        person.type("flockmq pub devices/sensor-7/t 1 -q 1 --username sensor-7\n")
        person.type(moving)
        person.stop("start")
        config.write_text(re.sub(r"^(password|acl)_file.*\n", "", config.read_text(), flags=re.MULTILINE))
        person.type("flockmq start --config /etc/flockmq/flockmq.toml\n")
        person.type(registering)
        # What the page shows is allowed, and what it does not show is not.
        person.type("flockmq pub devices/sensor-8/t 1 -q 1 --username sensor-8\n")
        person.type("! flockmq pub devices/sensor-7/t 1 -q 1 --username sensor-8\n")
        person.type("! flockmq sub commands/sensor-7 -c 1 -W 5 --username sensor-8\n")
        person.type("flockmq pub commands/sensor-8 reset -r -q 1 --username alice\n")
        assert "reset" in person.type("flockmq sub commands/sensor-8 -c 1 -W 20 --username sensor-8\n")
