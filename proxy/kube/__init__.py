"""On Kubernetes: what is added to a pod that gets Sidefetch as a sidecar, and the webhook that adds it.

``inject`` is pure: a pod and the chart's defaults go in, a pod or the reasons against it come out; the webhook and
``sidefetch inject`` both ask it. What runs inside a pod is ``proxy.net``, which knows nothing of this package.
"""
