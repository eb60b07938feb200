"""An HTTPS server that speaks what is needed of the Kubernetes API: EndpointSlices, page by page, for a token."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from integration.support.certificates import Authority

Json = dict[str, Any]


def pod(name: str, address: str, **conditions: bool | None) -> Json:
    return {"addresses": [address], "conditions": conditions, "targetRef": {"kind": "Pod", "name": name, "uid": name}}


def endpoint_slice(kind: str, *endpoints: Json, port: int | None = 16_000, port_name: str = "cluster") -> Json:
    ports = [{"name": "mqtt", "port": 1883, "protocol": "TCP"}]
    ports += [{"name": port_name, "port": port, "protocol": "TCP"}] if port else []
    return {"addressType": kind, "endpoints": list(endpoints) or None, "ports": ports, "metadata": {"name": "x"}}


class Api:
    """The API server: checks who asks and for what, answers one slice a page."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.slices: list[Json] = []
        self.token = "first"
        self.asked: list[str] = []
        self.before_page: Callable[[int], web.Response | None] = lambda page: None
        self.account = folder / "account"
        self.account.mkdir()
        (self.account / "ca.crt").write_bytes(self.authority.file.read_bytes())
        (self.account / "namespace").write_text("fleet")
        (self.account / "token").write_text("first\n")
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path_qs)
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "code": 401}, status=401)
        assert request.match_info["namespace"] == "fleet"
        assert request.query["labelSelector"] == "kubernetes.io/service-name=broker"
        assert int(request.query["limit"]) > 0
        page = int(request.query.get("continue", "0"))
        special = self.before_page(page)
        if special is not None:
            return special
        following = str(page + 1) if page + 1 < len(self.slices) else ""
        metadata = {"resourceVersion": "7", **({"continue": following} if following else {})}
        items = self.slices[page : page + 1]
        return web.json_response({"kind": "EndpointSliceList", "metadata": metadata, "items": items})

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve; ``url`` tells where."""
        app = web.Application()
        app.router.add_get("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices", self.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self.authority.server_context())
        await site.start()
        self.url = f"https://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield
        finally:
            await runner.cleanup()

    @contextmanager
    def serving_in_a_thread(self) -> Iterator[None]:
        """The same for tests that wait for processes."""
        ready, over = threading.Event(), threading.Event()

        async def serve() -> None:
            async with self.serving():
                ready.set()
                await asyncio.to_thread(over.wait)

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            assert ready.wait(30)
            yield
        finally:
            over.set()
            thread.join()
