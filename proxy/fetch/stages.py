"""States of the exchange at hand; after each event it moves as far along as it can go::

    Connecting --> Resolving --> Asking (Pausing) --> Converting --> Delayed --> (answered)
        |              |           | ^ ^                   |
        |              |           | | +-------------------+ there is nothing in it that the client can see
        |              |           | | refused or lost: asked again, a few times
        +--------------+-----------+-+--> an error to the client, which looks again

* Connecting: the patient lane is being opened.
* Resolving: the topology does not tell a topic yet, or tells another leader than the client was told.
* Asking: until there is enough, or the client's wait is over; and until every lane is sure, so that "nothing new"
  is the broker's word and not a memory.
* Pausing: the broker throttled the fetch of a client that knows no throttling; it is asked again afterwards.
* Converting: what will become of records that the client cannot read as they are is being found out.
* Delayed: the answer is ready but must not go yet: the client is throttled and does not know it, or its broker is
  gone and it would ask again at once.
"""

import attrs

from proxy.fetch.converting import Job
from proxy.wire.frames import Pieces

__all__ = ["Asking", "Connecting", "Converting", "Delayed", "Pausing", "Resolving", "Stage"]


@attrs.frozen
class Connecting:
    pass


@attrs.frozen
class Resolving:
    until_s: float


@attrs.frozen
class Asking:
    pass


@attrs.frozen
class Pausing:
    until_s: float


@attrs.frozen
class Converting:
    jobs: tuple[Job, ...]


@attrs.frozen
class Delayed:
    until_s: float
    pieces: Pieces


Stage = Connecting | Resolving | Asking | Pausing | Converting | Delayed
