"""What values may be, as types: the schemas of the API say it by the numbers and names that the broker checks with.

Lengths and ranges are checked when a request is decoded. A pattern stands in the description only: the broker checks
such values itself and says more about them than "no match". A test holds each pattern against that check. Lengths
count characters here and bytes in the broker, so a text of other characters than ASCII may be refused sooner. The
limit of MQTT, 65,535 bytes of a text, is not repeated in each schema.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta

from flockmq.cluster.checks import (
    FILTER_BYTES_MAX,
    FILTER_LEVELS_MAX,
    FILTERS_MAX,
    NAME_PATTERN,
    NUMBER_MAX,
    REPLICAS_MAX,
    SHARDS_MAX,
)
from flockmq.cluster.model import Limits as NamespaceLimits

_LEVEL: Final = r"(\+|[^+#/\u0000]*)"
FILTER_PATTERN: Final = rf"^(#|{_LEVEL}(/{_LEVEL})*(/#)?)$"
SHARED_FILTER_PATTERN: Final = rf"^(\$share/[^+#/\u0000]+/)?(#|{_LEVEL}(/{_LEVEL})*(/#)?)$"
DURABLE_FILTER_PATTERN: Final = (
    rf"^(#|(\+|([^$+#/\u0000][^+#/\u0000]*)?)(/{_LEVEL}){{0,{FILTER_LEVELS_MAX - 2}}}(/#|/{_LEVEL})?)$"
)
"""Filters that a durable topic can have: none of the broker's own, which begin with ``$``."""
CLIENT_FILTER_PATTERN: Final = rf"^(#|{_LEVEL}(/{_LEVEL}){{0,{FILTER_LEVELS_MAX - 2}}}(/#|/{_LEVEL})?)$"
TOPIC_PATTERN: Final = r"^[^+#\u0000]+$"
BASE64_PATTERN: Final = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_CLOCK: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_ISO: Final = (
    r"[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    rf"([T ]{_CLOCK}(:[0-5][0-9](\.[0-9]{{1,6}})?)?(Z|[+-]{_CLOCK})?)?"
)
TIME_PATTERN: Final = rf"^([0-9]{{11,15}}|{_ISO})$"
_OFFSET: Final = "[0-9]{1,18}"
START_PATTERN: Final = (
    rf"^(earliest|latest|offset:{_OFFSET}|offset:[0-9]{{1,9}}={_OFFSET}(,[0-9]{{1,9}}={_OFFSET})*"
    rf"|time:([0-9]{{11,15}}|{_ISO}))$"
)
WHO_PATTERN: Final = r"^(all|user:.+|client:.+|ip:[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$"
ENDS_PATTERN: Final = rf"^{_OFFSET}(,{_OFFSET})*$"

Qos = Annotated[int, Meta(ge=0, le=2)]
Shard = Annotated[int, Meta(ge=0, lt=SHARDS_MAX)]
Shards = Annotated[int, Meta(ge=1, le=SHARDS_MAX)]
Copies = Annotated[int, Meta(ge=1, le=REPLICAS_MAX)]
Count = Annotated[int, Meta(ge=1, le=NUMBER_MAX)]
Offset = Annotated[int, Meta(ge=0, le=NUMBER_MAX - 1)]
BanKind = Literal["client", "username", "address"]
Text = Annotated[str, Meta(extra_json_schema={"pattern": r"^[^\u0000]*$"})]
ShortText = Annotated[str, Meta(max_length=256, extra_json_schema={"pattern": r"^[^\u0000]*$"})]
RuleFilterText = Annotated[
    str, Meta(min_length=1, max_length=FILTER_BYTES_MAX, extra_json_schema={"pattern": FILTER_PATTERN})
]
TopicText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": TOPIC_PATTERN})]
FilterText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": FILTER_PATTERN})]
SharedFilterText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": SHARED_FILTER_PATTERN})]
Base64Text = Annotated[str, Meta(extra_json_schema={"contentEncoding": "base64", "pattern": BASE64_PATTERN})]
NameText = Annotated[str, Meta(min_length=1, max_length=128, extra_json_schema={"pattern": f"^{NAME_PATTERN}$"})]
TimeText = Annotated[str, Meta(max_length=64, extra_json_schema={"pattern": TIME_PATTERN})]
StartText = Annotated[str, Meta(max_length=24_000, extra_json_schema={"pattern": START_PATTERN})]
WhoText = Annotated[str, Meta(min_length=1, max_length=255, extra_json_schema={"pattern": WHO_PATTERN})]
DurableFilters = Annotated[
    list[
        Annotated[
            str,
            Meta(min_length=1, max_length=FILTER_BYTES_MAX, extra_json_schema={"pattern": DURABLE_FILTER_PATTERN}),
        ]
    ],
    Meta(max_length=FILTERS_MAX, extra_json_schema={"uniqueItems": True}),
]
ClientFilters = Annotated[
    list[
        Annotated[
            str, Meta(min_length=1, max_length=FILTER_BYTES_MAX, extra_json_schema={"pattern": CLIENT_FILTER_PATTERN})
        ]
    ],
    Meta(max_length=FILTERS_MAX, extra_json_schema={"uniqueItems": True}),
]
LIMIT_NAMES: Final = NamespaceLimits.__struct_fields__
LimitsByName = Annotated[
    dict[str, Annotated[int, Meta(ge=0, le=NUMBER_MAX)] | None],
    Meta(
        description=f"Limits by name, {', '.join(LIMIT_NAMES)}; 0 or null takes one away",
        examples=[{"clients_max": 100}],
        extra_json_schema={"propertyNames": {"enum": list(LIMIT_NAMES)}},
    ),
]
