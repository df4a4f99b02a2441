"""Decides for one client connection: what goes to which broker, in which order answers leave, and under which
addresses brokers are known. Pure: events in, commands out; ``net`` carries them out.

::

    client --> frames --+--> all but fetches, as they came or lifted: PassThrough, on the pass link --> broker
                        |        |
                        |        +--> what only a group's coordinator answers: errands --> that broker
                        |
                        +--> fetches, one after another: fetch.Reader, on two lanes ---> the same broker

    answers leave through ``Pipeline``, in the order of their requests.
"""
