"""The protocol logic of one client connection. Pure: events in, commands out; ``net`` does the I/O.

It decides which request goes to which broker, in which order responses leave, and which broker addresses the client
sees.

::

    client --> frames --+--> all but fetches, unchanged or upgraded: PassThrough, on the pass link ---> broker
                        |        |
                        |        +--> requests for a group coordinator: AskGroupCoordinator ---> that broker
                        |
                        +--> fetches, one after another: fetch.Reader, on two lanes ---> the same broker
    responses leave through ``Pipeline``, in the order of their requests.
"""
