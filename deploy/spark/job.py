"""For ``spark-submit``, which takes a file: the jobs of ``proxy.analysis.jobs``."""

from proxy.analysis.jobs import main

main()
