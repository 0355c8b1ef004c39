"""One thing that an operator does, by a client that is made of the API's description.

    python story.py URL DEED

DEED is an object of JSON: `verb`, and `kind`, `name` and `fields` where it needs them. What would
be cut is asked first, then it is done with leave to cut that. Prints both as JSON.
"""

import json
import os
import sys
from functools import partial
from importlib import import_module

from weft import AuthenticatedClient, models
from weft.api.default import drain, end_drain, evict_host, roll_back

VERBS = {"add": "add", "set": "set", "rm": "remove"}


def request(client, deed):
    """The call, and whether what it does can be asked first."""
    verb, kind, name = deed["verb"], deed["kind"], deed["name"]
    if verb == "evict":
        return partial(evict_host.sync, name, client=client), False
    if verb == "drain":
        return partial(drain.sync, client=client), True
    if verb == "end-drain":
        return partial(end_drain.sync, client=client), False
    if verb == "rollback":
        body = models.Rollback(generation=int(name))
        return partial(roll_back.sync, client=client, body=body), True
    call = import_module(f"weft.api.objects.{VERBS[verb]}_{kind}").sync
    fields = getattr(models, kind.title().replace("_", "") + "Fields")
    body = {} if verb == "rm" else {"body": fields.from_dict(deed["fields"])}
    return partial(call, name, client=client, **body), True


def known(answer):
    if isinstance(answer, models.ProblemDetails):
        sys.exit(f"{answer.title}: {answer.detail}")
    return answer


def main(url, deed):
    client = AuthenticatedClient(base_url=url, token=os.environ["WEFT_TOKEN"])
    call, can_be_asked = request(client, deed)
    cuts = []
    if can_be_asked:
        cuts = [line.text for line in known(call(dry_run=True)).plan if line.disturbs]
        if cuts:
            refused = call()
            if not isinstance(refused, models.ProblemDetails):
                sys.exit(f"done without leave: {refused}")
        call = partial(call, disconnect=bool(cuts))
    print(json.dumps({"cuts": cuts, "done": known(call()).done}))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
