"""The jobs of ``proxy.analysis.jobs`` as a file, which ``spark-submit`` needs."""

from proxy.analysis.jobs import main

main()
