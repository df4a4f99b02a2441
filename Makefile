# The two commands are `make demo` and `make test`. Both set up .venv themselves.
# Needs Python 3.11 or newer; the tests also need what .ci/prerequisites names.

PYTHON := $(shell .ci/prerequisites --python)
BIN := .venv/bin
INSTALLED := .venv/installed
PYTEST_ARGS ?=

.PHONY: install spark demo test telemetry kubernetes lint mutants bench bench-spark differential fuzz soak dist lock sbom audit clean

install: $(INSTALLED)

# Built anew when the lock, the project's metadata or what is compiled change; otherwise there is nothing to do.
# Without a C compiler the kernel is left as it is, and interpreted.
COMPILED := $(addprefix proxy/convert/,kernel.py checksum.h checksum.pxd)
$(INSTALLED): deploy/requirements.lock pyproject.toml .ci/prerequisites $(COMPILED)
	@.ci/prerequisites python
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/requirements.lock
	rm -f proxy/convert/kernel.*.so
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# What the pipeline over ledgers needs more: half a gigabyte, so not for the demo.
SPARK_INSTALLED := .venv/spark-installed
spark: $(SPARK_INSTALLED)
$(SPARK_INSTALLED): deploy/spark.lock $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
	  --require-hashes -r deploy/spark.lock
	@touch $@

demo: install
	$(BIN)/sidefetch demo

lint: spark
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.language

test:
	@.ci/prerequisites python java maven node go c openssl
	@$(MAKE) --no-print-directory spark
	@$(MAKE) --no-print-directory lint
	$(BIN)/pytest -m "not telemetry and not kubernetes" $(PYTEST_ARGS)

# What is told to Prometheus, a Collector and a browser, with real ones. The Collector is built: minutes, once.
telemetry:
	@.ci/prerequisites python go node chromium prometheus
	@$(MAKE) --no-print-directory install
	$(BIN)/pytest -m telemetry $(PYTEST_ARGS)

# The image, the chart and injection, by what builds, runs and admits them. As root, for chroots and containers; helm,
# Kubernetes' programs and the image's base are built: half an hour, once.
kubernetes:
	@.ci/prerequisites python java maven go c openssl root containers namespaces nftables librdkafka
	@$(MAKE) --no-print-directory install
	$(BIN)/pytest -m kubernetes $(PYTEST_ARGS)

# Breaks a rule of the protocol at a time; the tests named with it must fail. MUTANTS_ARGS=--all: also the fetch core.
mutants:
	@.ci/prerequisites python java openssl
	@$(MAKE) --no-print-directory spark
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

bench:
	@.ci/prerequisites python java maven
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

# 1, 10 and 50 million rows: half an hour, 10 GB of disk; or BENCH_ARGS=--quick.
bench-spark:
	@.ci/prerequisites python java
	@$(MAKE) --no-print-directory spark
	$(BIN)/python -m tests.bench_spark $(BENCH_ARGS)

# Half an hour of faults, or SOAK_ARGS="--seconds 7200 --seed 2"; what came of it goes into tests/soak/figures.json.
soak:
	@.ci/prerequisites python java maven node c
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.soak --report tests/soak/figures.json $(SOAK_ARGS)

# Real clients with drawn settings read directly and through Sidefetch: 300 combinations on Kafka 4.3.1, or
# DIFFERENTIAL_ARGS="--kafka 3.9.2 --seed 2 --minutes 60"; the figures are added to tests/differential/figures.json.
# Then ten minutes of drawn requests on single connections, or RAW_ARGS="--kafka 3.9.2 --seconds 60 --tags".
differential:
	@.ci/prerequisites python java maven node go
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.differential --report tests/differential/figures.json $(DIFFERENTIAL_ARGS)
	$(BIN)/python -m tests.differential.raw --seconds 600 $(RAW_ARGS)

# Hostile bytes, ten million inputs of them unless FUZZ_ARGS says otherwise: hours on a core.
fuzz: install
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

# The sdist, and the wheel that is built from it: for this Python and this machine, without a manylinux tag, so not for
# a public index. setuptools and Cython of the lock build both; nothing is downloaded. An older egg-info would add files.
dist: install
	rm -rf dist sidefetch.egg-info
	$(BIN)/python -W ignore -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' > /dev/null
	rm -rf sidefetch.egg-info
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation \
	  --wheel-dir dist dist/sidefetch-*.tar.gz

# Needs uv on the PATH. The files must name no registry host: they are read on machines that have their own.
COMPILE := uv pip compile --universal --python-version 3.11 --generate-hashes --no-header --no-annotate \
  --no-emit-index-url --quiet
lock:
	$(COMPILE) pyproject.toml --extra demo --extra grpc --extra kube --extra top --group build --group test \
	  --output-file deploy/requirements.lock
	$(COMPILE) pyproject.toml --extra kube --constraint deploy/requirements.lock --output-file deploy/runtime.lock
	$(COMPILE) pyproject.toml --extra spark --group spark-test --group build --constraint deploy/requirements.lock \
	  --output-file deploy/spark.lock
	printf 'kafka-python==1.4.7\nlz4\npython-snappy\nsix\nxxhash\n' | \
	  $(COMPILE) - --output-file tests/clients/locks/kafka-python-1.4.7.lock
	echo confluent-kafka==0.11.6 | $(COMPILE) - --no-deps --output-file tests/clients/locks/librdkafka-0.11.6.lock

# What is deployed, for those who look for what is known to be wrong with it; the tests hold it to the lock.
sbom: install
	$(BIN)/python deploy/sbom.py > deploy/sbom.cdx.json.new
	mv deploy/sbom.cdx.json.new deploy/sbom.cdx.json

# Needs uv on the PATH, and a network on which PyPI answers for its advisories; what it cannot ask about fails.
AUDIT := uv tool run pip-audit@2.10.1 --strict --require-hashes --disable-pip --progress-spinner off
audit:
	$(AUDIT) -r deploy/requirements.lock

clean:
	rm -f proxy/convert/kernel.c proxy/convert/kernel.*.so
	rm -rf .venv .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
	rm -rf tests/clients/node/node_modules
