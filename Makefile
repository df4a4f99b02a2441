# The two main commands are `make demo` and `make test`; both create .venv. They need Python 3.11 or newer, and the
# tests need more: .ci/prerequisites names each program that is missing.

PYTHON := $(shell .ci/prerequisites --python)
BIN := .venv/bin
INSTALLED := .venv/installed
PYTEST_ARGS ?=

.PHONY: install spark demo lint test test-long telemetry kubernetes mutants mutation bench bench-spark differential \
  fuzz adversaries soak dist lock sbom audit clean

install: $(INSTALLED)

# Repeated if the lock, the metadata or the compiled sources change. Without a C compiler the kernel is interpreted.
COMPILED := $(addprefix proxy/convert/,kernel.py checksum.h checksum.pxd)
$(INSTALLED): deploy/requirements.lock pyproject.toml .ci/prerequisites $(COMPILED)
	@.ci/prerequisites python
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r deploy/requirements.lock
	rm -f proxy/convert/kernel.*.so
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# Spark for the pipeline over ledgers: half a gigabyte, which the demo does not need.
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

# `make test` leaves out tests that resemble others.
FORM = --short
# By file, so that its brokers start once; in alphabetical order, since files with few tests may take long.
IN_PARALLEL = -n 3 --dist loadfile --no-loadscope-reorder

test:
	@.ci/prerequisites python java maven node go c openssl
	@$(MAKE) --no-print-directory spark
	@$(MAKE) --no-print-directory lint
	$(BIN)/pytest $(IN_PARALLEL) -m "not telemetry and not kubernetes" $(FORM) $(PYTEST_ARGS)

# The tests that `make test` leaves out: all combinations of clients, brokers and faults, and deep models.
test-long:
	@$(MAKE) --no-print-directory test FORM=
	SIDEFETCH_HYPOTHESIS=deep $(BIN)/pytest tests/relay/model/test_reading.py
	@$(MAKE) --no-print-directory mutants

# Metrics, traces and the status page, with Prometheus, a Collector and a browser. Builds the Collector once: minutes.
telemetry:
	@.ci/prerequisites python go node chromium prometheus
	@$(MAKE) --no-print-directory spark
	$(BIN)/pytest -m telemetry $(PYTEST_ARGS)

# The image, the chart and injection, with containers and Kubernetes' own programs; needs root. Builds helm, Kubernetes
# and the base of the image once: half an hour.
kubernetes:
	@.ci/prerequisites python java maven go c openssl root containers namespaces nftables librdkafka
	@$(MAKE) --no-print-directory spark
	$(BIN)/pytest -m kubernetes $(PYTEST_ARGS)

# Breaks a rule of the protocol at a time; the tests named with it must fail.
mutants:
	@.ci/prerequisites python java openssl
	@$(MAKE) --no-print-directory spark
	$(BIN)/python -m tests.mutants $(MUTANTS_ARGS)

# Mutates every function of the packages that tests/README.md lists, by mutmut: an hour or more on one core; or
# MUTATION_ARGS="session wire/records". The results are written to build/mutation.
MUTATION_INSTALLED := .cache/mutation/installed
mutation: $(MUTATION_INSTALLED)
	nice -n 10 $(BIN)/python -m tests.mutation $(MUTATION_ARGS)
$(MUTATION_INSTALLED): tests/mutation.lock $(INSTALLED)
	rm -rf .cache/mutation
	$(BIN)/python -m venv .cache/mutation
	.cache/mutation/bin/python -m pip install --quiet --disable-pip-version-check \
	  --require-hashes -r tests/mutation.lock
	@touch $@

bench:
	@.ci/prerequisites python java maven
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.bench $(BENCH_ARGS)

# 1, 10 and 50 million rows: half an hour, 10 GB of disk; or BENCH_ARGS=--quick.
bench-spark:
	@.ci/prerequisites python java
	@$(MAKE) --no-print-directory spark
	$(BIN)/python -m tests.bench_spark $(BENCH_ARGS)

# Half an hour of faults, or SOAK_ARGS="--seconds 7200 --seed 2". The results are written to tests/soak/figures.json.
soak:
	@.ci/prerequisites python java maven node c
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.soak --report tests/soak/figures.json $(SOAK_ARGS)

# Real clients with random settings read directly and through Sidefetch: 300 combinations on Kafka 4.3.1, or
# DIFFERENTIAL_ARGS="--kafka 3.9.2 --seed 2 --minutes 60". The figures are added to tests/differential/figures.json.
# Then ten minutes of random requests on single connections, or RAW_ARGS="--kafka 3.9.2 --seconds 60 --tags".
differential:
	@.ci/prerequisites python java maven node go
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.differential --report tests/differential/figures.json $(DIFFERENTIAL_ARGS)
	$(BIN)/python -m tests.differential.raw --seconds 600 $(RAW_ARGS)

# Ten million damaged inputs for the parsers: hours on one core. FUZZ_ARGS="--inputs 100000" for fewer.
fuzz: install
	$(BIN)/python -m tests.fuzz $(FUZZ_ARGS)

# Each attack against a Sidefetch of its own with the chart's memory, beside honest clients: a quarter of an hour or
# more. ADVERSARIES_ARGS="--seconds 4 large-produce" for one of them. Fails if a bound does not hold.
adversaries:
	@.ci/prerequisites python java maven
	@$(MAKE) --no-print-directory install
	$(BIN)/python -m tests.adversaries $(ADVERSARIES_ARGS)

# The sdist, and a wheel built from it for this Python and this platform (no manylinux tag, so not for a public index).
# setuptools and Cython of the lock build both; nothing is downloaded. An old egg-info would add files.
dist: install
	rm -rf dist sidefetch.egg-info
	$(BIN)/python -W ignore -c 'from setuptools import build_meta; build_meta.build_sdist("dist")' > /dev/null
	rm -rf sidefetch.egg-info
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-cache-dir --no-deps --no-build-isolation \
	  --wheel-dir dist dist/sidefetch-*.tar.gz

# Needs uv on the PATH. The files name no registry host, so that machines with a registry of their own can use them.
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
	echo mutmut==3.8.1 | $(COMPILE) - --constraint deploy/requirements.lock --output-file tests/mutation.lock
	echo confluent-kafka==0.11.6 | $(COMPILE) - --no-deps --output-file tests/clients/locks/librdkafka-0.11.6.lock

# The bill of materials of the image, for vulnerability scanners. A test compares it with the lock.
sbom: install
	$(BIN)/python deploy/sbom.py > deploy/sbom.cdx.json.new
	mv deploy/sbom.cdx.json.new deploy/sbom.cdx.json

# Needs uv on the PATH and PyPI's advisories; a package without a response from PyPI fails.
AUDIT := uv tool run pip-audit@2.10.1 --strict --require-hashes --disable-pip --progress-spinner off
audit:
	$(AUDIT) -r deploy/requirements.lock

clean:
	rm -f proxy/convert/kernel.c proxy/convert/kernel.*.so
	rm -rf .venv .cache build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache *.egg-info
	rm -rf tests/clients/node/node_modules
