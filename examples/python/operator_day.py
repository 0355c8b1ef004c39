"""An operator's day over the admin API, by a client that is made of its description.

    pip install openapi-python-client
    openapi-python-client generate --meta none --config examples/python/client.yml \\
        --path docs/openapi.json --output-path weft
    WEFT_TOKEN=$(weft token add day --role operator | head -n 1) \\
        PYTHONPATH=. python examples/python/operator_day.py http://127.0.0.1:4480

It adds volumes and lets two hosts have them, grows one, looks who is connected, and goes back to
what was served before.
"""

import os
import sys
from uuid import uuid4

from weft import AuthenticatedClient
from weft.api.default import get_status, list_connections, roll_back
from weft.api.objects import (
    add_subsystem,
    add_subsystem_host,
    add_subsystem_namespace,
    add_volume,
    get_volume,
    set_volume,
)
from weft.models import (
    Changed,
    Rollback,
    SubsystemFields,
    SubsystemHostFields,
    SubsystemNamespaceFields,
    VolumeFields,
)

NQN = "nqn.2026-01.org.example:noon"


def made(answer):
    """What a change has done, or the end of the day: a problem says what to do."""
    if not isinstance(answer, Changed):
        sys.exit(f"{answer.title}: {answer.detail}")
    for line in answer.done:
        print(f"generation {answer.generation}: {line}")
    return answer.generation


def main(url, token):
    client = AuthenticatedClient(base_url=url, token=token)
    status = get_status.sync(client=client)
    before = status.document.generation
    print(f"weft {status.version} serves generation {before}")

    # A key names the request: where its answer is lost it can be sent again.
    again = {
        "volume": "noon",
        "body": VolumeFields(kind="ram", size="8MiB"),
        "if_match": f'"{before}"',
        "idempotency_key": str(uuid4()),
    }
    generation = made(add_volume.sync(client=client, **again))
    assert made(add_volume.sync(client=client, **again)) == generation

    hosts = ["nqn.2026-01.org.example:first", "nqn.2026-01.org.example:second"]
    subsystem = SubsystemFields(hosts=hosts[:1], volumes=["noon"])
    made(add_subsystem.sync(NQN, client=client, body=subsystem))
    made(add_volume.sync("log", client=client, body=VolumeFields(kind="ram", size="8MiB")))
    namespace = SubsystemNamespaceFields(volume="log")
    made(add_subsystem_namespace.sync(NQN, "2", client=client, body=namespace))
    made(add_subsystem_host.sync(NQN, hosts[1], client=client, body=SubsystemHostFields()))

    larger = VolumeFields(size="16MiB")
    plan = set_volume.sync("noon", client=client, body=larger, dry_run=True).plan
    assert not any(line.disturbs for line in plan), plan
    made(set_volume.sync("noon", client=client, body=larger))
    volume = get_volume.sync("noon", client=client).objects[0]
    print(f"grown to {volume.fields['size']}")

    connected = list_connections.sync(client=client)
    print(f"connections: {len(connected.connections)}")

    # Another has changed the configuration since: this one is refused, and nothing is done.
    late = set_volume.sync_detailed(
        "noon", client=client, body=VolumeFields(size="32MiB"), if_match=f'"{before}"'
    )
    assert late.status_code == 409, late
    print(f"refused: {late.parsed.title}")

    made(roll_back.sync(client=client, body=Rollback(generation=before), disconnect=True))
    gone = get_volume.sync_detailed("noon", client=client)
    assert gone.status_code == 404, gone
    print(f"rolled back to generation {before}")


if __name__ == "__main__":
    main(sys.argv[1].rstrip("/"), os.environ["WEFT_TOKEN"])
