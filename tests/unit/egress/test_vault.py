"""The vault: what is attached to which request, and what is stopped."""

from __future__ import annotations

import base64
import dataclasses
import re
from urllib.parse import parse_qs, quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._egress import sigv4
from isobox._egress.placeholders import PLACEHOLDER
from isobox._egress.secret import Secret, SecretError, SigV4
from isobox._egress.vault import Request, StrayPlaceholderError, Vault
from isobox.errors import InvalidArgumentError, PolicyDeniedError

VALUE = "s3cr3t/+%\\1 é&=#"
HOST = "api.example.org"


def secret(name="TOKEN", *, value=VALUE, hosts=(HOST,), **template) -> Secret:
    return Secret(name, source=lambda: value, hosts=hosts, **template)


def placeholder(vault: Vault, name="TOKEN") -> str:
    return vault.environment()[name]


def request(target="/", *headers, host=HOST, port=443) -> Request:
    sent = ((b"Host", host.encode()), *headers)
    return Request(host, port, b"GET", target.encode(), sent)


def value_of(sent: Request, name: bytes) -> bytes:
    (value,) = [v for key, v in sent.headers if key.lower() == name.lower()]
    return value


def each_percent(text: str, *, upper=False) -> str:
    form = "%{:02X}" if upper else "%{:02x}"
    return "".join(form.format(code) for code in text.encode())


# -- what is inside ----------------------------------------------------------


def test_a_variable_holds_a_placeholder_that_no_other_vault_has():
    held = [secret("TOKEN"), secret("Other_Key", env="KEY")]
    first, second = Vault(held).environment(), Vault(held).environment()
    assert set(first) == {"TOKEN", "KEY"}
    texts = [*first.values(), *second.values()]
    assert len(set(texts)) == 4
    for text in texts:
        assert PLACEHOLDER.fullmatch(text.encode())
        assert re.fullmatch(r"isobox_[0-9a-f]{16}_[a-z0-9]+_[0-9a-f]{16}", text)
    assert "_otherkey_" in first["KEY"]


def test_a_name_without_a_plain_letter_has_a_placeholder_too():
    vault = Vault([secret("___"), secret("A" * 64)])
    assert all(PLACEHOLDER.fullmatch(p.encode()) for p in vault.environment().values())


def test_no_secrets():
    vault = Vault([])
    assert vault.environment() == {}
    assert not vault.applies(HOST, 443)
    assert vault.find(b"isobox_" * 100) is None
    assert vault.scanner().feed(b"isobox_" * 100) is None


def test_where_a_secret_applies():
    vault = Vault([secret(hosts=[HOST, "*.example.net:8443"])])
    assert vault.applies(HOST, 443)
    assert vault.applies("a.example.net", 8443)
    assert not vault.applies(HOST, 80)
    assert not vault.applies("a.example.net", 443)


@pytest.mark.parametrize(
    "pair",
    [
        (secret("A"), secret("A", value="other")),
        (secret("A"), secret("B", env="A")),
        (secret("A", basic="x"), secret("B", header="authorization: {}")),
        (
            secret("A", query="k={}", hosts=["*.example.org"]),
            secret("B", query="k={}"),
        ),
        (
            secret("A", header="X: {}", hosts=["*.example.org"]),
            secret("B", header="x: {}", hosts=["*.a.example.org"]),
        ),
    ],
)
def test_two_secrets_for_one_place_are_refused(pair):
    with pytest.raises(InvalidArgumentError):
        Vault(pair)


def test_two_secrets_for_one_place_at_different_hosts():
    Vault(
        [
            secret("A", header="X: {}", hosts=[HOST]),
            secret("B", header="X: {}", hosts=["api.example.net", f"{HOST}:8443"]),
            secret("C", header="Y: {}", hosts=[HOST]),
        ]
    )


# -- what is attached --------------------------------------------------------


@pytest.mark.anyio
async def test_a_request_without_secrets_is_the_same_object():
    vault = Vault([secret()])
    for sent in (request(), request(host="other.example.net"), request(port=8443)):
        assert await vault.attach(sent) is sent


@pytest.mark.anyio
async def test_a_placeholder_in_a_header_is_replaced():
    vault = Vault([secret()])
    text = f"Bearer {placeholder(vault)}!".encode()
    headers = ((b"X-Key", text), (b"accept-encoding", b"gzip"), (b"A", b"\xff b"))
    sent = await vault.attach(request("/p?q", *headers))
    assert sent.headers == (
        (b"Host", HOST.encode()),
        (b"X-Key", f"Bearer {VALUE}!".encode()),
        (b"Accept-Encoding", b"identity"),
        (b"A", b"\xff b"),
    )
    assert sent.target == b"/p?q"


@pytest.mark.anyio
async def test_white_space_at_the_ends_is_no_part_of_a_header():
    vault = Vault([secret(value=" a b ")])
    sent = await vault.attach(request("/", (b"X", placeholder(vault).encode())))
    assert value_of(sent, b"X") == b"a b"


@pytest.mark.anyio
@pytest.mark.parametrize("encode", [str, quote, each_percent])
async def test_a_placeholder_in_the_query_is_replaced(encode):
    vault = Vault([secret()])
    target = f"/p%20q?a=%41&key={encode(placeholder(vault))}&z"
    sent = await vault.attach(request(target))
    assert sent.target.startswith(b"/p%20q?a=%41&key=")
    assert sent.target.endswith(b"&z")
    query = sent.target.partition(b"?")[2].decode()
    assert parse_qs(query)["key"] == [VALUE]


@pytest.mark.anyio
@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC  "])
@pytest.mark.parametrize("pair", ["user:{}", "{}:", "{}:x-oauth-basic"])
async def test_a_placeholder_in_basic_credentials_is_replaced(scheme, pair):
    vault = Vault([secret()])
    inside = base64.b64encode(pair.format(placeholder(vault)).encode()).decode()
    header = (b"authorization", f"{scheme} {inside}".encode())
    value = value_of(await vault.attach(request("/", header)), b"Authorization")
    assert base64.b64decode(value.removeprefix(b"Basic ")).decode() == pair.format(
        VALUE
    )


@pytest.mark.anyio
@pytest.mark.parametrize("value", [b"Basic", b"Basic !!!", b"Basic YQ", b"Basic YQ=="])
async def test_other_credentials_stay_as_they_are(value):
    vault = Vault([secret()])
    sent = request("/", (b"Authorization", value))
    assert await vault.attach(sent) is sent


@pytest.mark.anyio
async def test_a_header_template_takes_the_clients_place():
    vault = Vault([secret(header="Authorization: Bearer {}")])
    old = ((b"authorization", b"a"), (b"X", b"y"), (b"AUTHORIZATION", b"b"))
    sent = await vault.attach(request("/", *old))
    assert value_of(sent, b"Authorization") == f"Bearer {VALUE}".encode()
    assert [name for name, _ in sent.headers] == [
        b"Host", b"Authorization", b"X", b"Accept-Encoding",
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_header_template_with_braces():
    vault = Vault([secret(value="a{}b", header='X: {"k": "{}"}')])
    assert value_of(await vault.attach(request()), b"X") == b'{"k": "a{}b"}'


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("target", "kept"),
    [
        ("/", "/?"),
        ("/?", "/?"),
        ("/?a=b&c", "/?a=b&c&"),
        ("/?api%20key=x&a=b&api+key&api%20key=", "/?a=b&"),
    ],
)
async def test_a_query_template_takes_the_clients_place(target, kept):
    vault = Vault([secret(query="api key=k-{}")])
    sent = await vault.attach(request(target))
    assert sent.target.decode() == f"{kept}api%20key={quote('k-' + VALUE, safe='')}"


@pytest.mark.anyio
async def test_a_user_name_makes_basic_credentials():
    vault = Vault([secret(basic="x-access-token")])
    value = value_of(await vault.attach(request()), b"Authorization")
    pair = base64.b64decode(value.removeprefix(b"Basic "))
    assert pair == f"x-access-token:{VALUE}".encode()


@pytest.mark.anyio
async def test_several_secrets_on_one_request():
    vault = Vault(
        [secret("A", value="aaa"), secret("B", value="bbb", header="X-B: {}")]
    )
    a, b = placeholder(vault, "A"), placeholder(vault, "B")
    headers = ((b"X", f"{a}{b}{a}".encode()), (b"X-B", b"c"))
    sent = await vault.attach(request(f"/?a={a}&b={b}", *headers))
    assert sent.target == b"/?a=aaa&b=bbb"
    assert value_of(sent, b"X") == b"aaabbbaaa"
    assert value_of(sent, b"X-B") == b"bbb"


@pytest.mark.anyio
async def test_a_value_that_cannot_be_had_is_an_error():
    vault = Vault([Secret("A", source="env:ISOBOX_TEST_ABSENT", hosts=[HOST])])
    sent = request("/", (b"X", placeholder(vault, "A").encode()))
    with pytest.raises(SecretError, match="secret A: the variable"):
        await vault.attach(sent)


def aws(hosts=(HOST,), **more) -> Vault:
    identity = Secret("ID", source=lambda: "AKIDEXAMPLE", hosts=hosts)
    token = Secret("SESSION", source=lambda: "session==", hosts=hosts)
    how = SigV4(
        access_key_id=identity, region="eu-west-1", service="sqs", session_token=token
    )
    return Vault([secret("KEY", sigv4=how), identity, secret("Q", **more)])


@pytest.mark.anyio
async def test_aws_requests_are_signed_again():
    vault = aws()
    assert set(vault.environment()) == {"KEY", "ID", "SESSION", "Q"}
    credential = f"AWS4-HMAC-SHA256 Credential={placeholder(vault, 'ID')}/20200101/x"
    sent = request(
        "/",
        (b"Authorization", credential.encode()),
        (b"X-Amz-Date", b"x"),
        (b"X-Amz-Security-Token", placeholder(vault, "SESSION").encode()),
    )
    assert vault.needs_body(sent)
    assert not vault.needs_body(request(host="other.example.org"))
    filled = await vault.attach(sent)
    value = value_of(filled, b"Authorization").decode()
    assert re.fullmatch(
        r"AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/[0-9]{8}/eu-west-1/sqs/aws4_request, "
        r"SignedHeaders=host;x-amz-date;x-amz-security-token, Signature=[0-9a-f]{64}",
        value,
    )
    assert value_of(filled, b"X-Amz-Security-Token") == b"session=="
    assert vault.known().redact_text(f"{VALUE} AKIDEXAMPLE") == (
        "*" * len(VALUE.encode()) + " " + "*" * 11
    )


@pytest.mark.anyio
async def test_a_signature_covers_what_other_secrets_put_there(monkeypatch):
    signed = []
    monkeypatch.setattr(
        sigv4, "sign", lambda sent, keys, how: signed.append(sent) or sent
    )
    await aws(query="q={}").attach(request("/"))
    assert signed[0].target == f"/?q={quote(VALUE, safe='')}".encode()


# -- what is stopped ---------------------------------------------------------


async def stray(vault: Vault, sent: Request) -> str:
    with pytest.raises(StrayPlaceholderError) as error:
        await vault.attach(sent)
    assert isinstance(error.value, PolicyDeniedError)
    assert "isobox_" not in str(error.value)
    assert error.value.secret in str(error.value)
    return error.value.secret


def never() -> str:
    raise AssertionError("no value is read for a request that is refused")


@pytest.mark.anyio
async def test_a_placeholder_for_another_host_is_refused():
    held = [
        Secret("HERE", source=never, hosts=[HOST], header="X: {}"),
        Secret("AWAY", source=never, hosts=["away.example.org", f"{HOST}:8443"]),
    ]
    vault = Vault(held)
    here, away = placeholder(vault, "HERE"), placeholder(vault, "AWAY")
    basic = base64.b64encode(f"user:{away}".encode())
    for sent in (
        request("/", (b"X", away.encode())),
        request("/", (b"X", f"{here} {away}".encode())),
        request(f"/?a={away}"),
        request(f"/?a={each_percent(away)}"),
        request(f"/?a={each_percent(away, upper=True)}"),
        request(f"/{away}"),
        request("/", (b"Authorization", b"Basic " + basic)),
        request("/", (b"X", basic)),
    ):
        assert await stray(vault, sent) == "AWAY"
    other = request("/", (b"X", here.encode()), host="other.example.net")
    assert await stray(vault, other) == "HERE"


@pytest.mark.anyio
async def test_a_placeholder_where_none_may_be_is_refused():
    vault = Vault([Secret("TOKEN", source=never, hosts=[HOST])])
    text = placeholder(vault).encode()
    for sent in (
        request(f"/{text.decode()}?a"),
        request(f"/{each_percent(text.decode())}"),
        request(f"/%69{text.decode()[1:]}"),
        request("/", (text, b"value")),
        request("/", (b"Host", text)),
        request("/", (b"Content-Length", text)),
        request("/", (b"X", base64.b64encode(text))),
        request("/", (b"X", base64.b64encode(b"a" + text + b"?"))),
        dataclasses.replace(request(), method=text),
    ):
        assert await stray(vault, sent) == "TOKEN"


@pytest.mark.anyio
async def test_too_many_placeholders_are_refused():
    vault = Vault([Secret("TOKEN", source=never, hosts=[HOST])])
    headers = [(b"X", placeholder(vault).encode())] * 100
    with pytest.raises(PolicyDeniedError, match="so many placeholders"):
        await vault.attach(request("/", *headers))


@pytest.mark.anyio
async def test_a_placeholder_of_another_vault_is_only_text():
    vault, other = Vault([secret()]), Vault([secret()])
    sent = request("/", (b"X", placeholder(other).encode()))
    assert await vault.attach(sent) is sent


@pytest.mark.anyio
@settings(deadline=None)
@given(
    target=st.binary(max_size=80).map(lambda b: b"/" + b),
    value=st.binary(max_size=80),
    insert=st.sampled_from(["", "{}", "{}"]),
)
async def test_any_bytes_are_a_request_or_refused(target, value, insert):
    vault = Vault([secret()])
    text = insert.format(placeholder(vault)).encode()
    sent = Request(HOST, 443, b"GET", target, ((b"X", value + text), (b"Y", value)))
    filled = await vault.attach(sent)
    assert (VALUE.encode() in value_of(filled, b"X")) == bool(text)
    assert filled.target == target


# -- what is found elsewhere -------------------------------------------------

FORMS = [
    lambda text: text,
    lambda text: each_percent(text.decode()).encode(),
    lambda text: each_percent(text.decode(), upper=True).encode(),
    *(
        lambda text, before=before, encode=encode: encode(before + text + b"..")
        for before in (b"", b"a", b"ab", b"abc")
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
    ),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_placeholder_is_found_in_any_form_however_it_is_split(form):
    vault = Vault([secret("A"), secret("LONGER_NAME")])
    for name, text in vault.environment().items():
        data = b"before " + form(text.encode()) + b" after"
        assert vault.find(data) == name
        assert vault.find(data[:40]) is None
        for cut in range(len(data)):
            scanner = vault.scanner()
            assert name in (scanner.feed(data[:cut]), scanner.feed(data[cut:]))
        scanner = vault.scanner()
        assert name in [scanner.feed(data[i : i + 1]) for i in range(len(data))]


def test_a_placeholder_in_the_name_of_a_host_is_found():
    vault = Vault([secret()])
    assert vault.find(f"{placeholder(vault)}.example.net".encode()) == "TOKEN"


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_what_holds_no_placeholder_holds_none(data):
    vault = Vault([secret()])
    assert vault.find(data) is None
    assert vault.scanner().feed(data) is None


# -- what comes back ---------------------------------------------------------


@pytest.mark.anyio
async def test_values_that_are_known_are_masked(monkeypatch, tmp_path):
    monkeypatch.setenv("ISOBOX_TEST_TOKEN", "value-of-the-variable")
    asked = iter(["first-answer-of-it", "second-answer-of-it"])
    vault = Vault(
        [
            Secret("A", source="env:ISOBOX_TEST_TOKEN", hosts=["a.example.org"]),
            Secret("B", source=f"file:{tmp_path}/absent", hosts=["b.example.org"]),
            Secret(
                "C", source=lambda: next(asked), hosts=[HOST], header="X: {}", max_age=0
            ),
        ]
    )
    text = "value-of-the-variable first-answer-of-it second-answer-of-it"
    masked = [(await vault.redactor()).redact_text(text).count("*")]
    for _ in range(2):
        await vault.attach(request())
        masked.append((await vault.redactor()).redact_text(text).count("*"))
    assert masked == [21, 21 + 18, 21 + 18 + 19]


@pytest.mark.anyio
async def test_each_redactor_has_a_stream_of_its_own(monkeypatch):
    monkeypatch.setenv("ISOBOX_TEST_TOKEN", "value-of-it")
    vault = Vault([Secret("A", source="env:ISOBOX_TEST_TOKEN", hosts=[HOST])])
    one, two = await vault.redactor(), await vault.redactor()
    assert one.feed(b"value-") == b""
    assert two.feed(b"of-it") == b"of-it"
    assert one.feed(b"of-it") == b"*" * 11


def test_what_url_encoders_make_of_a_placeholder_is_itself():
    text = placeholder(Vault([secret()]))
    assert quote(text, safe="") == quote_plus(text) == text


def test_two_secrets_of_one_name_are_refused_though_they_are_equal():
    one = secret("TOKEN")
    for two in (one, dataclasses.replace(one), secret("TOKEN", value="other")):
        with pytest.raises(InvalidArgumentError, match="two secrets are called TOKEN"):
            Vault([one, two])


def test_a_secret_may_be_a_part_of_two_others():
    token = secret("SESSION")
    keys = {"access_key_id": "AKID", "region": "eu-west-1", "session_token": token}
    made = Vault(
        [
            secret("A", hosts=("a.test",), sigv4=SigV4(service="s3", **keys)),
            secret("B", hosts=("b.test",), sigv4=SigV4(service="s3", **keys)),
        ]
    )
    assert set(made.environment()) == {"A", "B", "SESSION"}
