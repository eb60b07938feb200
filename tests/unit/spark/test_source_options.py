"""Options: every name, what they may be, and the sentence that a wrong one gets."""

from __future__ import annotations

import pickle

import pytest

from flockmq.errors import FlockError
from flockmq.spark.options import ALIASES, EARLIEST, LATEST, NAMES, ReadOptions
from flockmq.spark.servers import Servers

BASE = {"server": "http://127.0.0.1:1", "token": "secret", "subscribe": "plant"}


def parse(**options: str) -> ReadOptions:
    return ReadOptions.parse({**BASE, **options})


def test_what_is_not_given_is_as_usual() -> None:
    found = parse()
    assert found.topics == ("plant",)
    assert found.start is None
    assert found.fail_on_data_loss
    assert found.read_from == "any"
    assert found.delay_ms_max == 15 * 60_000
    assert found.servers.namespace == "default"


def test_names_in_any_case_and_in_our_words() -> None:
    found = ReadOptions.parse(
        {"SERVER": "http://a:1, http://b:2", "token": "t", "topics": "plant, office", "maxrecordspertrigger": "5"}
    )
    assert found.servers.urls == ("http://a:1", "http://b:2")
    assert found.topics == ("plant", "office")
    assert found.records_max == 5


def test_everything_at_once() -> None:
    found = parse(
        namespace="acme",
        topicFilter="plant/+/t,plant/1/#",
        columns="plant/{site}/{line:int}/+",
        readFrom="Follower",
        startingOffsets='{"plant":{"0":-2,"1":-1,"2":7}}',
        endingTimestamp="1772366400000",
        failOnDataLoss="false",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="30s",
        maxBytesPerTrigger="64mb",
        minPartitions="2",
        maxRecordsPerPartition="100",
        maxTasks="9",
        cursor="q1",
        cursorHold="false",
        includeHeaders="false",
        groupIdPrefix="x",
        retries="0",
    )
    assert found.filters == ("plant/+/t", "plant/1/#")
    assert found.template is not None
    assert found.template.names == ["site", "line"]
    assert found.start is not None
    assert found.start.offsets == {"plant": {0: EARLIEST, 1: LATEST, 2: 7}}
    assert found.end is not None
    assert found.end.time_ms == 1772366400000
    assert (found.delay_ms_max, found.bytes_max) == (30_000, 64 << 20)
    assert found.servers.retries == 0
    assert found.cursor_hold is False
    assert parse().cursor_hold is None
    assert pickle.loads(pickle.dumps(found)) == found


def test_every_name_is_known_and_no_word_means_two_things() -> None:
    assert len({name.lower() for name in [*NAMES, *ALIASES]}) == len(NAMES) + len(ALIASES)
    assert set(ALIASES.values()) <= set(NAMES)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "x"}, "There are assign, ca,"),
        ({"assign": '{"plant":[0]}'}, "exactly one of"),
        ({"topics": "office"}, "given twice"),
        ({"startingOffsets": "first"}, "no JSON"),
        ({"startingOffsets": '{"plant":{"0":-3}}'}, "earliest, latest"),
        ({"startingOffsets": '{"plant":[1]}'}, "earliest, latest"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"startingOffsetsByTimestamp": '{"plant":{"0":-1}}'}, "milliseconds"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "one of error, latest"),
        ({"readFrom": "nearest"}, "one of any, leader, follower"),
        ({"failOnDataLoss": "maybe"}, "true or false"),
        ({"maxTasks": "0"}, "1 or more"),
        ({"maxTriggerDelay": "soon"}, "15m or 30s"),
        ({"maxTriggerDelay": "30"}, "15m or 30s"),
        ({"maxBytesPerTrigger": "10x"}, "64m or 1g"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "no micro-batch could be both"),
        ({"minPartitions": "9", "maxTasks": "5"}, "lower it"),
        ({"topicFilter": "plant/#/x"}, "no MQTT topic filter"),
        ({"columns": "plant/+"}, "1 to 64"),
        ({"columns": "plant/{offset}"}, "choose another name"),
        ({"retries": "-1"}, "0 or more"),
        ({"key": "k.pem"}, "option cert"),
        ({"insecure": "perhaps"}, "true or false"),
    ],
)
def test_a_wrong_option_is_told_what_is_right(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(FlockError, match=sentence):
        parse(**options)


@pytest.mark.parametrize("options", [{"subscribe": ""}, {"subscribePattern": "("}, {"assign": '{"plant":[]}'}])
def test_topics_must_be_named_rightly(options: dict[str, str]) -> None:
    with pytest.raises(FlockError):
        ReadOptions.parse({"server": "http://a:1", "token": "t", **options})


def test_assigned_shards() -> None:
    found = ReadOptions.parse({"server": "http://a:1", "token": "t", "assign": '{"plant":[2,0,2]}'})
    assert found.assigned == {"plant": (0, 2)}


def test_streams_have_no_end_and_batches_have_one() -> None:
    parse(startingOffsets="latest").check_streaming()
    parse(endingOffsets="latest").check_batch()
    with pytest.raises(FlockError, match="no end"):
        parse(endingOffsets="latest").check_streaming()
    for wrong in (
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"endingOffsets": '{"plant":{"0":-2}}'},
    ):
        with pytest.raises(FlockError, match="would read nothing"):
            parse(**wrong).check_batch()


def test_a_moment_goes_before_offsets() -> None:
    found = parse(startingTimestamp="5", startingOffsets="earliest", startingOffsetsByTimestamp='{"plant":{"0":1}}')
    assert found.start is not None
    assert found.start.time_ms == 5


def test_a_token_is_not_shown() -> None:
    assert "secret" not in repr(parse())


def test_servers_as_options_again() -> None:
    found = Servers.from_options({**BASE, "namespace": "acme", "insecure": "true"})
    assert Servers.from_options(found.options()) == found


def test_the_usual_server(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    file = f"{tmp_path}/credentials.toml"
    monkeypatch.setenv("FLOCKMQ_CREDENTIALS", file)
    monkeypatch.delenv("FLOCKMQ_TOKEN", raising=False)
    monkeypatch.delenv("FLOCKMQ_SERVER", raising=False)
    from flockmq.security import credentials

    assert Servers.from_options({}).urls == ("http://127.0.0.1:18083",)
    credentials.save("http://a:1", "one")
    found = Servers.from_options({})
    assert (found.urls, found.token) == (("http://a:1",), "one")
    credentials.save("http://b:1", "two")
    with pytest.raises(FlockError, match="option server"):
        Servers.from_options({})
    monkeypatch.setenv("FLOCKMQ_SERVER", "http://b:1, http://c:1")
    assert Servers.from_options({}).urls == ("http://b:1", "http://c:1")
    monkeypatch.setenv("FLOCKMQ_SERVER", "http://b:1")
    assert Servers.from_options({}).token == "two"


def test_a_client_is_kept_per_settings() -> None:
    one, other = Servers(token="t"), Servers(token="u")
    assert one.client() is one.client()
    assert one.client() is not other.client()
