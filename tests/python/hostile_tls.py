"""A client of NVMe/TCP with TLS that does what none may.

Arguments: port, identity, key in hexadecimal digits, hash and case; it prints how the
connection ended: what was answered, the alert that came, or that it was closed.
"""

import socket
import sys

from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.constants import AlertDescription, ContentType
from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert
from tlslite.messages import Message

# Initialize Connection Request: a PDU of 128 bytes, most of them zeros.
ICREQ = bytearray(128)
ICREQ[2] = 128
ICREQ[4] = 128
ICRESP = 1
UPDATE_NOT_REQUESTED, UPDATE_REQUESTED = 0, 1
TIMEOUT_S = 30


class Client:
    """One connection, after a handshake."""

    def __init__(self, port, settings):
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.tls = TLSConnection(self.socket)
        self.tls.closeSocket = False
        self.tls.handshakeClientCert(settings=settings)

    def record(self, kind, content):
        """Sends one record, whatever is in it."""
        for _ in self.tls._recordLayer.sendRecord(Message(kind, bytearray(content))):
            pass

    def data(self, content):
        self.record(ContentType.application_data, content)

    def key_update(self, wanted):
        """Tells of other keys, and seals what follows with them."""
        self.record(ContentType.handshake, b"\x18\x00\x00\x01" + bytes([wanted]))
        session = self.tls.session
        secrets = session.cl_app_secret, session.sr_app_secret
        layer = self.tls._recordLayer
        secrets = layer.calcTLS1_3KeyUpdate_reciever(session.cipherSuite, *secrets)
        session.cl_app_secret, session.sr_app_secret = secrets

    def exchange(self):
        """Initialises the connection; whether that was answered."""
        self.data(ICREQ)
        return self.is_answered()

    def is_answered(self):
        answer = self.tls.read(min=128, max=128)
        return len(answer) == 128 and answer[0] == ICRESP

    def end(self):
        """What the connection ends with."""
        try:
            while self.tls.read(max=16384):
                pass
        except TLSRemoteAlert as alert:
            return AlertDescription.toStr(alert.description)
        except (TLSAbruptCloseError, ConnectionResetError):
            return "closed"
        return "close_notify"


def settings_of(identity, key, digest, case):
    settings = HandshakeSettings()
    settings.minVersion = (3, 4)
    settings.maxVersion = (3, 4)
    settings.psk_modes = ["psk_dhe_ke"]
    key = bytearray.fromhex(key)
    if case == "wrong key":
        key[0] ^= 1
    if case == "unknown identity":
        identity += "x"
    settings.pskConfigs = [(bytearray(identity, "ascii"), key, digest)]
    if case == "no key":
        settings.pskConfigs = []
    if case == "no key exchange":
        settings.psk_modes = ["psk_ke"]
    if case == "old version":
        settings.minVersion = (3, 1)
        settings.maxVersion = (3, 3)
    return settings


def key_updates(client):
    """In the middle of data: what is answered then comes under other keys."""
    for at in range(0, len(ICREQ), 16):
        client.key_update(UPDATE_REQUESTED)
        client.key_update(UPDATE_NOT_REQUESTED)
        client.data(ICREQ[at : at + 16])
    assert client.is_answered()
    client.record(ContentType.alert, b"\x01\x00")


def flood_of_key_updates(client):
    for _ in range(1000):
        client.key_update(UPDATE_REQUESTED)


def flood_of_empty_records(client):
    for _ in range(1000):
        client.data(b"")


def record_over_its_length(client):
    body = (1 << 14) + 257
    client.socket.sendall(b"\x17\x03\x03" + body.to_bytes(2, "big") + bytes(body))


def plaintext_over_its_length(client):
    client.data(bytes((1 << 14) + 1))


def record_of_another_number(client):
    client.tls._recordLayer._writeState.seqnum += 1
    client.data(ICREQ)


def data_in_the_clear(client):
    client.socket.sendall(bytes(ICREQ))


def change_cipher_spec(client):
    client.socket.sendall(b"\x14\x03\x03\x00\x01\x01")


def handshake_again(client):
    # A ClientHello, encrypted: TLS 1.3 has no renegotiation.
    client.record(ContentType.handshake, b"\x01\x00\x00\x04\x03\x03\x00\x00")


def request_for_a_certificate(client):
    client.record(ContentType.handshake, b"\x0d\x00\x00\x03\x00\x00\x00")


def key_update_of_a_wrong_form(client):
    client.record(ContentType.handshake, b"\x18\x00\x00\x01\x02")


def content_of_no_type(client):
    client.record(99, b"what is this")


def fatal_alert(client):
    client.record(ContentType.alert, b"\x02\x50")


def close_notify(client):
    assert client.exchange()
    client.record(ContentType.alert, b"\x01\x00")


def data_in_single_bytes(client):
    for byte in ICREQ:
        client.data([byte])
    assert client.is_answered()
    client.record(ContentType.alert, b"\x01\x00")


def truncated(client):
    assert client.exchange()
    client.socket.sendall(b"\x17\x03\x03\x01\x00" + bytes(100))
    client.socket.shutdown(socket.SHUT_WR)


AFTER = {
    "key updates": key_updates,
    "flood of key updates": flood_of_key_updates,
    "flood of empty records": flood_of_empty_records,
    "record over its length": record_over_its_length,
    "plaintext over its length": plaintext_over_its_length,
    "record of another number": record_of_another_number,
    "data in the clear": data_in_the_clear,
    "change of cipher": change_cipher_spec,
    "handshake again": handshake_again,
    "request for a certificate": request_for_a_certificate,
    "key update of a wrong form": key_update_of_a_wrong_form,
    "content of no type": content_of_no_type,
    "fatal alert": fatal_alert,
    "close notify": close_notify,
    "data in single bytes": data_in_single_bytes,
    "truncated": truncated,
}


def run(port, identity, key, digest, case):
    try:
        client = Client(port, settings_of(identity, key, digest, case))
    except TLSRemoteAlert as alert:
        return "refused: " + AlertDescription.toStr(alert.description)
    if case == "good":
        return "answered" if client.exchange() else "not answered"
    try:
        AFTER[case](client)
    except (ConnectionResetError, BrokenPipeError):
        # It has ended already; its alert may lie there still.
        pass
    return client.end()


if __name__ == "__main__":
    port, identity, key, digest = sys.argv[1:5]
    for case in sys.argv[5:]:
        print(f"{case}: {run(int(port), identity, key, digest, case)}", flush=True)
