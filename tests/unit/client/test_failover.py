"""How long a client goes on asking, and which answers it takes for final."""

from __future__ import annotations

import pytest

from flockmq.client.failover import Failover, Patience
from flockmq.client.topic_calls import TopicCalls
from flockmq.client.transport import UnreachableError
from flockmq.errors import ApiError, FlockError, NoLeader, NotFound

URLS = ["http://127.0.0.1:1", "http://127.0.0.1:2"]


class Asked:
    """Answers of servers, in turn; which servers were asked."""

    def __init__(self, *answers: Exception | str) -> None:
        self._answers = list(answers)
        self.urls: list[str] = []

    def __call__(self, server: TopicCalls) -> str:
        self.urls.append(server.server_url)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def never_sent() -> UnreachableError:
    error = UnreachableError("no connection")
    error.was_never_sent = True
    return error


def client(retry_s: float = 0.0) -> Failover:
    return Failover(URLS, "token", retry_s=retry_s)


@pytest.mark.parametrize("first", [UnreachableError("cut off"), NoLeader()], ids=["unreachable", "try again"])
def test_the_next_server_is_asked(first: Exception) -> None:
    asked = Asked(first, "found")
    assert client()._anywhere(asked) == "found"
    assert asked.urls == URLS


def test_what_a_named_server_refuses_is_final() -> None:
    asked = Asked(NotFound("There is no topic."))
    with pytest.raises(NotFound):
        client(retry_s=60)._anywhere(asked)
    assert asked.urls == URLS[:1]


def test_without_patience_all_servers_are_asked_once() -> None:
    asked = Asked(NoLeader(), NoLeader())
    with pytest.raises(ApiError) as raised:
        client()._anywhere(asked)
    assert isinstance(raised.value, NoLeader)
    assert asked.urls == URLS


def test_what_may_have_been_heard_is_not_sent_again() -> None:
    asked = Asked(never_sent(), UnreachableError("no answer"))
    with pytest.raises(UnreachableError, match="no answer"):
        client(retry_s=60)._anywhere(asked, is_repeatable=False)
    assert asked.urls == URLS, "only the first was certainly not heard"


def test_patience_ends_at_once_or_later() -> None:
    assert Patience(0.0).is_over()
    assert not Patience(60.0).is_over()


def test_a_server_must_be_named() -> None:
    with pytest.raises(FlockError, match="No server is named"):
        Failover([])
