"""AWS's signatures, against the examples that AWS publishes."""

from __future__ import annotations

import calendar
import dataclasses
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isobox._egress import sigv4
from isobox._egress.request import Request
from isobox._egress.secret import SigV4
from isobox._egress.sigv4 import Keys
from isobox.errors import PolicyDeniedError

#: Of the test suite for Signature Version 4.
SUITE = Keys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
SUITE_TIME = calendar.timegm((2015, 8, 30, 12, 36, 0))
#: Of "Examples: Signature calculations" in the API reference of S3.
S3 = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
S3_TIME = calendar.timegm((2013, 5, 24, 0, 0, 0))
EMPTY = b"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

FORM = (b"Content-Type", b"application/x-www-form-urlencoded")


def how(service="service") -> SigV4:
    return SigV4(access_key_id="AKIDEXAMPLE", region="us-east-1", service=service)


def request(
    method=b"GET", target=b"/", *headers, body=b"", host=b"example.amazonaws.com"
):
    return Request(
        host.decode(), 443, method, target, ((b"Host", host), *headers), body
    )


def authorization(sent: Request) -> str:
    (value,) = [v for name, v in sent.headers if name == b"Authorization"]
    return value.decode()


def signature(sent: Request) -> str:
    return authorization(sent).rpartition("Signature=")[2]


@pytest.mark.parametrize(
    ("sent", "signature_of_the_suite"),
    [
        (request(), "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            request(b"GET", "/ሴ".encode()),
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
        (
            request(b"GET", b"/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                    b"abcdefghijklmnopqrstuvwxyz"),
            "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
        ),
        (
            request(b"GET", b"/?Param2=value2&Param1=value1"),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        *(
            (
                request(b"GET", path),
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            )
            for path in (b"//", b"/./", b"/example/..", b"/example1/example2/../..")
        ),
        (
            request(b"POST"),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            request(b"POST", b"/", FORM, body=b"Param1=value1"),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        ),
    ],
)  # fmt: skip
def test_the_suite_of_aws(sent, signature_of_the_suite):
    signed = sigv4.sign(sent, SUITE, how(), now=SUITE_TIME)
    assert signature(signed) == signature_of_the_suite
    assert authorization(signed).startswith(
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
        "aws4_request, SignedHeaders="
    )
    assert (b"X-Amz-Date", b"20150830T123600Z") in signed.headers


@pytest.mark.parametrize(
    ("target", "signature_of_s3"),
    [
        (
            b"/?lifecycle",
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            b"/?max-keys=2&prefix=J",
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_the_examples_of_s3(target, signature_of_s3):
    body = (b"x-amz-content-sha256", EMPTY)
    sent = request(b"GET", target, body, host=b"examplebucket.s3.amazonaws.com")
    signed = sigv4.sign(sent, S3, how("s3"), now=S3_TIME)
    assert signature(signed) == signature_of_s3


def test_what_the_client_signed_is_forgotten():
    old = (
        (b"authorization", b"AWS4-HMAC-SHA256 Credential=x"),
        (b"x-amz-date", b"20000101T000000Z"),
        (b"x-amz-security-token", b"inside"),
    )
    signed = sigv4.sign(request(b"GET", b"/", *old), SUITE, how(), now=SUITE_TIME)
    assert signed == sigv4.sign(request(), SUITE, how(), now=SUITE_TIME)
    assert signature(signed).startswith("5fa00fa3")


def test_a_session_token_is_signed():
    keys = dataclasses.replace(SUITE, token="token==")
    signed = sigv4.sign(request(), keys, how(), now=SUITE_TIME)
    assert (b"X-Amz-Security-Token", b"token==") in signed.headers
    assert "host;x-amz-date;x-amz-security-token" in authorization(signed)


def test_s3_is_told_that_the_body_is_not_signed():
    sent = request(b"PUT", b"/key")
    assert not sigv4.needs_body(sent, how("s3"))
    signed = sigv4.sign(sent, S3, how("s3"), now=S3_TIME)
    assert (b"X-Amz-Content-Sha256", b"UNSIGNED-PAYLOAD") in signed.headers
    assert "x-amz-content-sha256" in authorization(signed)


def test_the_hash_that_the_client_tells_stands_for_the_body():
    told = request(b"POST", b"/", (b"x-amz-content-sha256", EMPTY), body=b"ignored")
    assert not sigv4.needs_body(told, how())
    assert sigv4.needs_body(request(b"POST"), how())
    signed = sigv4.sign(told, SUITE, how(), now=SUITE_TIME)
    same = sigv4.sign(dataclasses.replace(told, body=b""), SUITE, how(), now=SUITE_TIME)
    assert signature(signed) == signature(same)


def test_a_presigned_request_stays_as_it_is():
    sent = request(b"GET", b"/key?X-Amz-Credential=x&X-Amz-Signature=00")
    assert sigv4.sign(sent, S3, how("s3")) is sent
    assert not sigv4.needs_body(sent, how())


@pytest.mark.parametrize("suffix", [b"PAYLOAD", b"PAYLOAD-TRAILER"])
def test_a_body_that_is_signed_in_pieces_is_refused(suffix):
    header = (b"X-Amz-Content-SHA256", b"STREAMING-AWS4-HMAC-SHA256-" + suffix)
    with pytest.raises(PolicyDeniedError, match="signed in pieces"):
        sigv4.sign(request(b"PUT", b"/", header), S3, how("s3"))


def test_a_body_in_pieces_without_signatures_is_signed():
    header = (b"X-Amz-Content-SHA256", b"STREAMING-UNSIGNED-PAYLOAD-TRAILER")
    signed = sigv4.sign(request(b"PUT", b"/", header), S3, how("s3"))
    assert header[1] in [value for _, value in signed.headers]


def test_the_present_is_signed():
    signed = sigv4.sign(request(), SUITE, how())
    (stamp,) = [v.decode() for name, v in signed.headers if name == b"X-Amz-Date"]
    then = calendar.timegm(time.strptime(stamp, "%Y%m%dT%H%M%SZ"))
    assert abs(then - time.time()) < 60


def test_keys_do_not_show():
    assert "wJalr" not in repr(dataclasses.replace(SUITE, token="wJalr"))


@settings(deadline=None)
@given(
    st.binary(max_size=60),
    st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=20)), max_size=4),
    st.sampled_from(["s3", "service"]),
)
def test_any_bytes_are_signed(target, headers, service):
    sent = request(b"GET", b"/" + target, *headers)
    if sigv4.is_presigned(sent):
        return
    signed = sigv4.sign(sent, SUITE, how(service), now=SUITE_TIME)
    assert re.fullmatch(r"[0-9a-f]{64}", signature(signed))
    assert signed.target == sent.target
