"""`data` goes in and comes out byte for byte, whatever JSON it is."""

import httpx
import pytest
from sqlalchemy import text

from tests.contract.requests_sent import deliver
from tests.contract.served import Api, served, subscribe
from tests.receivers import Receiver
from tests.waiting import wait_until

JSON = {"content-type": "application/json"}
DATA = {
    "blanks": '{ "a" :\t[ 1 ,\r\n 2 ] }',
    "numbers": "[1.0, 1, -0, 1e400, 1E+2, 123456789012345678901234567890, 0.1000]",
    "escapes": r'"\u0041\/\n\"\\"',
    "not escaped": '"é ☃ 🎉 \u2028 \u2029 \x7f"',
    "a NUL": r'{"a": "\u0000"}',
    "lone surrogates": r'["\ud800", "\udfff\ud800", "\uD83D\uDE00"]',
    "duplicate keys": '{"b":1,"a":2,"b":3}',
    "an empty name": '{"":{"":[]}}',
    "null": "null",
    "true": "true",
    "a string": '""',
    "many levels": "[" * 500 + "]" * 500,
    "long digits": "9" * 5000,
    "looks like ours": '{"data":{"data":1},"type":"x"}',
}


@pytest.mark.parametrize("name", DATA)
def test_data_of_an_event_stays_as_it_was_sent(api: Api, acme: httpx.Client, name: str) -> None:
    sent = f'{{"type": "a.b", "data" : {DATA[name]} }}'.encode()
    posted = acme.post("/v1/events", content=sent, headers=JSON)
    assert posted.status_code == 202, posted.text
    got = acme.get(f"/v1/events/{posted.json()['id']}").content
    assert got.endswith(b'"data":' + DATA[name].encode() + b"}")
    listed = acme.get("/v1/events?limit=1").content
    assert b'"data":' + DATA[name].encode() + b"}]" in listed
    with api.runtime.engine.connect() as connection:
        body = connection.execute(
            text("SELECT head || data::text || '}' FROM duehook.events WHERE id = :id"), {"id": posted.json()["id"]}
        ).scalar_one()
    assert body.encode().endswith(b'"data":' + DATA[name].encode() + b"}"), "what receivers get"


@pytest.mark.parametrize("name", DATA)
def test_data_of_a_reservation_stays_as_it_was_sent(acme: httpx.Client, name: str) -> None:
    sent = f'{{"resource":"r","hold_seconds":60,"data":{DATA[name]}}}'.encode()
    held = acme.post("/v1/reservations", content=sent, headers=JSON)
    assert held.status_code == 201, held.text
    assert b'"data":' + DATA[name].encode() + b',"created_at"' in held.content
    confirmed = acme.post(f"/v1/reservations/{_id(held)}/confirm")
    assert b'"data":' + DATA[name].encode() + b',"created_at"' in confirmed.content
    event = acme.get("/v1/events?limit=1").content
    assert b'"data":' + DATA[name].encode() + b',"created_at"' in event, "the event of the transition"


def test_receivers_get_the_bytes_of_data(database_url: str) -> None:
    receiver = Receiver()
    receiver.verify = lambda _body, _headers: None
    with served(database_url) as api, api.client() as client:
        subscribe(client, url=receiver.url)
        names = {}
        for name, data in DATA.items():
            sent = f'[{{"type":"a.b","data": {data} }}]'.encode()
            names[client.post("/v1/events", content=sent, headers=JSON).json()["data"][0]["id"]] = name
        deliver(api)
        wait_until(lambda: len(receiver.received) == len(DATA), what="all are received")
        for each in receiver.received:
            assert each.body.endswith(b',"data":' + DATA[names.pop(each.event_id)].encode() + b"}")
    receiver.close()
    assert not names


def test_data_of_exactly_the_limit(acme: httpx.Client) -> None:
    data = '"' + "x" * (1024 * 1024 - 2) + '"'
    body = f'{{"type":"a","data":{data}}}'
    assert acme.post("/v1/events", content=body, headers=JSON).status_code == 202
    refused = acme.post("/v1/events", content=body.replace('"x', '"xx'), headers=JSON)
    assert (refused.status_code, refused.json()["type"]) == (413, "/problems/too-large")


def test_the_limit_counts_bytes_and_not_characters(acme: httpx.Client) -> None:
    body = '{"type":"a","data":"' + "é" * (512 * 1024) + '"}'
    assert acme.post("/v1/events", content=body.encode(), headers=JSON).status_code == 413


def _id(answer: httpx.Response) -> str:
    """Read off the text: not every parser takes what stands in data."""
    return answer.text.split('"id":"')[1].split('"')[0]
