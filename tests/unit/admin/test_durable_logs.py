from __future__ import annotations

import asyncio

import pytest

from flockmq.admin import durable_logs, durable_topics, handlers
from flockmq.admin import durable_model as model
from flockmq.admin.desk import Desk
from flockmq.admin.durable_polls import Polls
from flockmq.admin.model import MessageProperties, PublishRequest, UserProperty
from flockmq.admin.operations import Raw
from flockmq.cluster.commands import CreateHidden, CreateNamespace
from flockmq.cluster.model import CAPTURE_TOPIC
from flockmq.errors import ApiError
from flockmq.log.batch import BatchView
from flockmq.node.namespaces import NamespaceLimits
from flockmq.testing.harness import BrokerHarness
from unit.admin.desks import call, make_desk
from unit.admin.durable_desks import WALL_MS, MemoryDurable


async def open_topic(shards: int = 1) -> tuple[Desk, MemoryDurable]:
    port = MemoryDurable()
    desk = make_desk(BrokerHarness(), durable=port)
    await durable_topics.create_topic(desk, call(body=model.TopicRequest(name="plant", shards=shards)))
    return desk, port


async def publish(desk: Desk, *records: model.RecordToPublish, client: str = "") -> model.Publication:
    body = model.PublishRecords(records=list(records), client=client)
    return await durable_logs.publish_records(desk, call(model.InNamespace(), body, name="plant"))


async def read(desk: Desk, accept: str = "", shard: str = "0", **query: object) -> Raw | model.Records:
    return await durable_logs.read_records(
        desk,
        call(model.ReadQuery(**query), accept=accept, name="plant", shard=shard),  # type: ignore[arg-type]
    )


async def somebody_waits(desk: Desk) -> None:
    for _ in range(100):
        if desk.polls.waiting:
            return
        await asyncio.sleep(0)
    raise AssertionError("nobody waits")


def record(topic: str, payload: str, **fields: object) -> model.RecordToPublish:
    return model.RecordToPublish(topic=topic, payload=payload, **fields)  # type: ignore[arg-type]


async def test_what_is_published_can_be_read_by_people() -> None:
    desk, _ = await open_topic()
    user = MessageProperties(user_properties=[UserProperty("unit", "°C"), UserProperty("unit", "K")])
    binary = model.RecordToPublish(topic="plant/2", payload_base64="AP8=")
    done = await publish(desk, record("plant/1", "21.5", properties=user), binary, client="sensor")
    assert done.placed == [model.Placed(shard=0, offset=0), model.Placed(shard=0, offset=1)]
    assert (done.refused, done.reason) == (0, "")
    found = await read(desk)
    assert isinstance(found, model.Records)
    assert (found.first_offset, found.end_offset, found.next_offset) == (0, 2, 2)
    first, second = found.records
    assert (first.topic, first.client, first.payload, first.payload_base64) == ("plant/1", "sensor", "21.5", None)
    assert first.user_properties == [UserProperty("unit", "°C"), UserProperty("unit", "K")]
    assert first.timestamp_at == "2026-03-01T12:00:00.000Z"
    assert (second.payload, second.payload_base64, second.user_properties) == (None, "AP8=", [])


async def test_raw_batches_come_as_they_are_stored() -> None:
    desk, port = await open_topic()
    await publish(desk, *[record("plant/1", str(number)) for number in range(5)])
    found = await read(desk, durable_logs.BATCHES, offset=3)
    assert isinstance(found, Raw)
    assert found.content_type == "application/vnd.flockmq.batches"
    assert BatchView(found.body).base_offset == 3
    assert found.headers["X-Flockmq-First-Offset"] == "0"
    assert found.headers["X-Flockmq-End-Offset"] == "5"
    assert found.headers["X-Flockmq-Replicas"].count("http://127.0.0.1:") == 3
    assert found.body == b"".join(port.log(1).batches[3:])


async def test_limits_of_a_page_for_people() -> None:
    desk, port = await open_topic()
    port.log(1).append([(b"plant/1", b"", str(number).encode(), []) for number in range(10)], WALL_MS)
    found = await read(desk, offset=4, limit=3)
    assert isinstance(found, model.Records)
    assert [one.offset for one in found.records] == [4, 5, 6]
    assert found.next_offset == 7
    at_end = await read(desk, offset=10)
    assert isinstance(at_end, model.Records)
    assert (at_end.records, at_end.next_offset) == ([], 10)


async def test_reading_from_a_time_on() -> None:
    desk, port = await open_topic()
    port.log(1).append([(b"plant/1", b"", b"early", [])], WALL_MS)
    port.log(1).append([(b"plant/1", b"", b"late", [])], WALL_MS + 60_000)
    for moment in ("2026-03-01T12:00:30Z", "2026-03-01T12:00:30", "2026-03-01T13:00:30+01:00", str(WALL_MS + 1)):
        found = await read(desk, time=moment)
        assert isinstance(found, model.Records)
        assert [one.payload for one in found.records] == ["late"]
    offsets = await durable_logs.get_offsets(desk, call(model.OffsetsQuery(time=str(WALL_MS + 1)), name="plant"))
    assert offsets.offsets == [1]


@pytest.mark.parametrize("moment", ["yesterday", "2026-03-01T25:00:00", "", "-1", "9" * 16])
async def test_a_time_that_is_none(moment: str) -> None:
    desk, _ = await open_topic()
    with pytest.raises(ApiError, match="milliseconds since 1970") as refusal:
        await read(desk, time=moment)
    assert refusal.value.kind.status == 400


async def test_offset_and_time_together_make_no_sense() -> None:
    desk, _ = await open_topic()
    with pytest.raises(ApiError, match="both given"):
        await read(desk, time="0", offset=0)


async def test_offsets_that_are_gone_or_not_there_yet() -> None:
    desk, port = await open_topic()
    await publish(desk, record("plant/1", "x"))
    port.log(1).first = 1
    with pytest.raises(ApiError, match="gone") as refusal:
        await read(desk, offset=0)
    assert (refusal.value.kind.status, refusal.value.headers) == (410, {"X-Flockmq-First-Offset": "1"})
    with pytest.raises(ApiError) as refusal:
        await read(desk, offset=9)
    assert (refusal.value.kind.status, refusal.value.kind.code) == (416, "beyond_end")
    assert refusal.value.headers == {"X-Flockmq-End-Offset": "1"}
    at_the_end = await read(desk, offset=1)
    assert isinstance(at_the_end, model.Records)
    assert at_the_end.records == [], "who follows a log is no fault"
    port.no_quorum = True
    with pytest.raises(ApiError) as refusal:
        await read(desk, offset=9)
    assert (refusal.value.kind.status, refusal.value.kind.code) == (503, "behind")


async def test_without_a_place_it_begins_with_the_oldest_that_is_left() -> None:
    desk, port = await open_topic()
    await publish(desk, *[record("plant/1", str(number)) for number in range(5)])
    port.log(1).first = 3
    found = await read(desk)
    assert isinstance(found, model.Records)
    assert [one.offset for one in found.records] == [3, 4]
    assert found.first_offset == 3


@pytest.mark.parametrize("shard", ["1", "-1", "x", "99999999999"])
async def test_a_shard_that_is_not_there(shard: str) -> None:
    desk, _ = await open_topic()
    with pytest.raises(ApiError, match="has 1 shard,") as refusal:
        await read(desk, shard=shard)
    assert refusal.value.kind.status == 404


async def test_a_reader_waits_for_more() -> None:
    desk, _ = await open_topic()
    waiting = asyncio.create_task(read(desk, offset=0, wait_ms=20_000))
    await somebody_waits(desk)
    await publish(desk, record("plant/1", "x"))
    found = await waiting
    assert isinstance(found, model.Records)
    assert [one.payload for one in found.records] == ["x"]
    assert desk.polls.waiting == 0


async def test_those_who_wait_are_counted() -> None:
    desk, _ = await open_topic()
    desk.polls = Polls(1)
    waiting = asyncio.create_task(read(desk, offset=0, wait_ms=20_000))
    await somebody_waits(desk)
    with pytest.raises(ApiError, match="wait here already") as refusal:
        await read(desk, offset=0, wait_ms=1)
    assert refusal.value.headers == {"Retry-After": "1"}
    assert isinstance(await read(desk, offset=0), model.Records)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert desk.polls.waiting == 0


async def test_heads_and_waiting_for_them() -> None:
    desk, _ = await open_topic(shards=2)
    found = await durable_logs.get_heads(desk, call(model.HeadsQuery(), name="plant"))
    assert [(one.shard, one.first_offset, one.end_offset) for one in found.heads] == [(0, 0, 0), (1, 0, 0)]
    assert found.after == "0,0"
    query = model.HeadsQuery(after=found.after, wait_ms=20_000)
    waiting = asyncio.create_task(durable_logs.get_heads(desk, call(query, name="plant")))
    await somebody_waits(desk)
    done = await publish(desk, record("plant/1", "x"))
    assert done.placed[0] is not None
    assert (await waiting).heads[done.placed[0].shard].end_offset == 1


async def test_a_shard_that_was_added_is_news() -> None:
    desk, port = await open_topic(shards=2)
    port.log(2).append([(b"plant/1", b"", b"x", [])], WALL_MS)
    query = model.HeadsQuery(after="0", wait_ms=20_000)
    found = await durable_logs.get_heads(desk, call(query, name="plant"))
    assert found.after == "0,1"


@pytest.mark.parametrize("after", ["x", "1,", "-1", "1;2"])
async def test_nonsense_to_wait_for(after: str) -> None:
    desk, _ = await open_topic()
    with pytest.raises(ApiError, match="by shard"):
        await durable_logs.get_heads(desk, call(model.HeadsQuery(after=after), name="plant"))


@pytest.mark.parametrize(
    ("topic", "sentence"), [("other/1", "no topic name of 'plant'"), ("plant/#", "topic"), ("$ns/x/plant/1", "plant/#")]
)
async def test_records_that_belong_elsewhere(topic: str, sentence: str) -> None:
    desk, port = await open_topic()
    with pytest.raises(ApiError, match=sentence):
        await publish(desk, record("plant/1", "ok"), record(topic, "x"))
    assert port.log(1).end == 0


async def test_refused_records_are_certainly_not_in_the_log() -> None:
    desk, port = await open_topic()
    port.refuse, port.refused_topics = "The partition has no leader now; try again.", {b"plant/1"}
    done = await publish(desk, record("plant/1", "x"), record("plant/2", "y"))
    assert done.placed[0] is None
    assert done.placed[1] is not None
    assert (done.refused, done.reason) == (1, port.refuse)


async def test_nothing_stored_is_no_success() -> None:
    desk, port = await open_topic()
    port.refuse = "The partition has no leader now; try again."
    with pytest.raises(ApiError, match="None of the records was stored: The partition has no leader") as refusal:
        await publish(desk, record("plant/1", "x"), record("plant/2", "y"))
    assert (refusal.value.kind.status, refusal.value.kind.code) == (503, "unavailable")


async def test_a_single_publish_of_a_durable_topic_is_answered_after_commit() -> None:
    desk, port = await open_topic()
    kept = await handlers.publish(desk, call(body=PublishRequest(topic="plant/1", payload="x", retain=True)))
    assert (kept.durable_topic, kept.shard, kept.offset, kept.retained) == ("plant", 0, 0, True)
    port.refuse = "The partition has no leader now; try again."
    with pytest.raises(ApiError, match="no leader") as refusal:
        await handlers.publish(desk, call(body=PublishRequest(topic="plant/1", payload="x")))
    assert refusal.value.kind.status == 503
    other = await handlers.publish(desk, call(body=PublishRequest(topic="other", payload="x")))
    assert (other.durable_topic, other.shard, other.offset) == (None, None, None)
    assert port.log(1).end == 1


async def test_a_single_publish_to_the_durable_topic_of_a_namespace() -> None:
    desk, port = await open_topic()
    port.apply(CreateNamespace("acme"))
    desk.broker.set_namespaces([NamespaceLimits("acme")], 0)
    asked = model.TopicRequest(name="plant", filters=["plant/#"], namespace="acme")
    await durable_topics.create_topic(desk, call(body=asked))
    kept = await handlers.publish(desk, call(body=PublishRequest(topic="plant/1", payload="x", namespace="acme")))
    assert (kept.durable_topic, kept.shard, kept.offset) == ("plant", 0, 0)
    assert (port.log(1).end, port.log(2).end) == (0, 1)


async def test_filters_leave_out_what_nobody_wants() -> None:
    desk, _ = await open_topic()
    for number in range(3):
        await publish(desk, record("plant/1", f"{number}"))
        await publish(desk, record("plant/2", f"{number}"))
    found = await read(desk, filter=["plant/2", "nobody/+"])
    assert isinstance(found, model.Records)
    assert [(one.offset, one.topic) for one in found.records] == [(1, "plant/2"), (3, "plant/2"), (5, "plant/2")]
    assert found.next_offset == 6
    some = await read(desk, filter=["plant/2"], limit=2)
    assert isinstance(some, model.Records)
    assert some.next_offset == 4
    raw = await read(desk, accept=durable_logs.BATCHES, filter=["plant/none/#"])
    assert isinstance(raw, Raw)
    assert (raw.body, raw.headers["X-Flockmq-Next-Offset"]) == (b"", "6")


async def test_a_filter_must_be_one() -> None:
    desk, _ = await open_topic()
    for wrong in ("a/#/b", "a+", "+b"):
        with pytest.raises(ApiError, match="`filter` can't be"):
            await read(desk, filter=[wrong])


async def test_hidden_topics_are_not_read_or_written_by_name() -> None:
    desk, port = await open_topic()
    port.apply(CreateHidden(CAPTURE_TOPIC))
    body = model.PublishRecords(records=[record("plant/1", "x")])
    for tried in (
        durable_logs.read_records(desk, call(model.ReadQuery(), name=CAPTURE_TOPIC, shard="0")),
        durable_logs.get_heads(desk, call(model.HeadsQuery(), name=CAPTURE_TOPIC)),
        durable_logs.get_offsets(desk, call(model.OffsetsQuery(time="2026-03-01"), name=CAPTURE_TOPIC)),
        durable_logs.publish_records(desk, call(model.InNamespace(), body, name=CAPTURE_TOPIC)),
    ):
        with pytest.raises(ApiError, match="no topic") as refusal:
            await tried
        assert refusal.value.kind.status == 404
