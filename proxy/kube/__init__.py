"""On Kubernetes: what is added to a pod that gets Sidefetch as a sidecar, and the webhook that adds it.

``inject`` is pure: a pod and the chart's defaults go in, a pod or the reasons against it come out. Two ask it: the
webhook, and ``sidefetch inject``; both carry over what has changed by ``patch``, one to the API server, the other
into the text of a manifest. What runs inside a pod is ``proxy.net``, which knows nothing of this package.

====================  ==============================================================================================
asks for what         ``annotations``, ``redirect`` (the packet filter's rules), ``sizes``
pure                  ``inject``, ``containers``, ``variables``, ``validation``, ``patch``, ``review``
for the command       ``workloads``, ``manifests``
for the webhook       ``webhook``, ``certificates``, ``rotation``, ``api``
====================  ==============================================================================================
"""
