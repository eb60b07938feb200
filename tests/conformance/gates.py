"""Small gates for conformance tests: passwords, an authentication in steps, and rules by topic."""

from __future__ import annotations

from flockmq.node.ports import Accept, AuthRequest, Continue, Identity, Refuse, Verdict


class PasswordGate:
    """Knows user names and passwords; or refuses everybody with one reason code."""

    def __init__(self, passwords: dict[str, bytes], refuse: int = 0, text: str = "Go away") -> None:
        self.version = 0
        self.passwords = passwords
        self.refuse = refuse
        self.text = text

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        if self.refuse:
            return Refuse(self.refuse, self.text)
        wanted = self.passwords.get(request.username or "")
        if wanted is None or wanted != request.password:
            return Refuse(0x86, "The user name or password is wrong")
        return Accept(Identity(request.client_id, request.username))

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        return Refuse(0x8C, "There is no exchange")

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        return True

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return True


class StepGate(PasswordGate):
    """Method ``two-step``: the client says its name, is asked "question", and answers "answer".

    CONNECT(data=name) -> AUTH 0x18 "question" -> AUTH 0x18 "answer" -> CONNACK with data "welcome".
    Clients without a method are let in.
    """

    def __init__(self) -> None:
        super().__init__({})
        self.asked = 0

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        if request.method is None:
            return Accept(Identity(request.client_id, request.username))
        if request.method != "two-step":
            return Refuse(0x8C, "Only two-step is known here")
        if request.data == b"at once":
            return Accept(Identity(request.client_id), 0, b"welcome")
        request.state = request.data
        self.asked += 1
        return Continue(b"question")

    def resume(self, request: AuthRequest, data: bytes) -> Verdict | None:
        if data == b"more":
            return Continue(b"another question")
        if data != b"answer":
            return Refuse(0x87, "Wrong answer")
        return Accept(Identity(request.client_id, None), 0, b"welcome")


class LateGate(PasswordGate):
    """Says nothing at once; the test hands in the verdict through ``Broker.auth_result``."""

    def __init__(self) -> None:
        super().__init__({})
        self.requests: list[AuthRequest] = []

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        self.requests.append(request)
        return None


class TopicGate(PasswordGate):
    """Everybody may connect; topics and filters that begin with ``forbidden`` are refused."""

    def __init__(self) -> None:
        super().__init__({})
        self.forbidden = b"forbidden"
        self.asked: list[bytes] = []

    def authenticate(self, request: AuthRequest) -> Verdict | None:
        return Accept(Identity(request.client_id, request.username))

    def may_publish(self, identity: Identity, topic: bytes) -> bool:
        self.asked.append(topic)
        return not topic.startswith(self.forbidden)

    def may_capture(self, identity: Identity, topic_filter: bytes) -> bool:
        return True

    def may_subscribe(self, identity: Identity, topic_filter: bytes) -> bool:
        return not topic_filter.startswith(self.forbidden)
