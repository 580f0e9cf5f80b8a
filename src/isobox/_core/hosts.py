"""Names of hosts: one form for what a rule says and what a request asks for."""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import Final

from isobox.errors import InvalidArgumentError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: RFC 1035 with the underscore that real names have; hyphens not at the ends.
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
#: What resolvers take for a number, as browsers do: 2130706433, 0x7f.1, 127.1.
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST: Final = 253
#: A name of this length in another form is never a good one in ours.
_LONGEST_TEXT: Final = 1024
#: Addresses of up to so many characters are remembered.
_SHORT: Final = 45
_parsed: Final = functools.lru_cache(1024)(ipaddress.ip_address)


def normal(text: str) -> str:
    """Return the one form of a host: a name or an IP address, as text.

    A name is in lower case, in ASCII (IDNA 2008 after UTS 46), without a final
    dot. An IP address is as `ipaddress` writes it, without brackets.

    Raises:
        InvalidArgumentError: It is neither, or it is a number that a resolver
            would take for an address (`2130706433`, `0x7f.1`, `127.1`), or it
            has a zone.
    """
    address = address_of(text)
    if address is not None:
        return str(address)
    name = _ascii(text).lower()
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > _LONGEST or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refusal(text, "not a host name")
    if _NUMBER.fullmatch(labels[-1]):
        raise _refusal(text, "a number in disguise; write addresses as 192.0.2.1")
    return name


def address_of(text: str) -> Address | None:
    """Return the IP address that `text` writes in full, if it is one.

    An IPv4 address mapped into IPv6 is that IPv4 address.

    Raises:
        InvalidArgumentError: It is an address with a zone.
    """
    if text.startswith("[") and text.endswith("]"):
        text = text[1:-1]
        if ":" not in text:
            raise _refusal(text, "brackets are for IPv6 addresses")
    if ":" not in text and not text[-1:].isdigit():
        return None  # the last label of a name, and never of an address
    try:
        address = _parsed(text) if len(text) <= _SHORT else ipaddress.ip_address(text)
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise _refusal(text, "an address with a zone")
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def matches(pattern: str, host: str) -> bool:
    """Whether a host is what a pattern names; both are in the one form.

    `*.example.org` names everything below example.org, and not itself; `*`
    names every host. Labels are compared whole, so that `evilexample.org` is
    not below `example.org`.
    """
    if pattern == "*":
        return True
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return pattern == host


def overlap(pattern: str, other: str) -> bool:
    """Whether some host is what both patterns name."""
    # One of the names that each stands for tells whether the other is wider.
    one, two = (each.replace("*", "x") for each in (pattern, other))
    return pattern == other or matches(pattern, two) or matches(other, one)


def pattern(text: str) -> str:
    """Return the one form of a pattern: a host, `*.` and a name, or `*`.

    Raises:
        InvalidArgumentError: It is none of these.
    """
    if text == "*":
        return text
    if text.startswith("*."):
        name = normal(text[2:])
        if address_of(name) is not None:
            raise _refusal(text, "an address has nothing below it")
        return f"*.{name}"
    return normal(text)


def _ascii(text: str) -> str:
    if len(text) > _LONGEST_TEXT:
        raise _refusal(text[:64] + "...", "too long")
    if text.isascii():
        return text
    import idna  # noqa: PLC0415 - only names that need it pay for its tables

    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError) as error:
        raise _refusal(text, f"not a host name ({error})") from None


def _refusal(text: str, reason: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"host {text!r}: {reason}")
