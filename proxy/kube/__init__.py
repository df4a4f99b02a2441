"""Injection of Sidefetch into pods as a sidecar, and the Kubernetes webhook that does it.

``inject`` is pure: a pod and the chart's defaults go in, a pod or the reasons against it come out. The webhook and
``sidefetch inject`` both use it; both apply the difference as a ``patch``, one to the API server's object, the
other to the text of a manifest. The sidecar itself is ``proxy.net``, which does not import this package.

====================  ==============================================================================================
requests              ``annotations``, ``redirect`` (the packet filter's rules), ``sizes``
pure                  ``inject``, ``containers``, ``variables``, ``validation``, ``patch``, ``review``
for the command       ``workloads``, ``manifests``
for the webhook       ``webhook``, ``certificates``, ``rotation``, ``api``
====================  ==============================================================================================
"""
