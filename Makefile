# Everything runs in the project's own environment, made on first use.
PYTHON ?= python3
VENV := .venv
# The oldest and the newest Python that the project supports.
VERSIONS := 3.11 3.13
BIN := $(VENV)/bin
# Where it is set, every process that a test starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE
STAMP := $(VENV)/.installed

.PHONY: test test-thorough test-versions lint typecheck types-src types-tests compiled unit demo golden
.PHONY: bench docs clean

# Everything runs, whatever fails before; the last line counts the tests.
test: $(STAMP)
	@failed=""; $(MAKE) --no-print-directory -j2 -k --output-sync=target lint typecheck compiled \
		|| failed="lint or type checking"; \
	FAILED="$$failed" $(MAKE) --no-print-directory unit && test -z "$$failed"

# All of that with each of these versions that is installed, in environments of their own.
test-versions:
	@failed=""; found=""; \
	for version in $(VERSIONS); do \
		if command -v python$$version > /dev/null; then \
			found="$$found $$version"; \
			$(MAKE) --no-print-directory test PYTHON=python$$version VENV=.venv-$$version \
				|| failed="$$failed $$version"; \
		else \
			echo "There is no python$$version: nothing is tested with Python $$version."; \
		fi; \
	done; \
	echo "Tested with Python:$${found:- none}; failed with:$${failed:- none}"; \
	test -n "$$found" && test -z "$$failed"

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check \
		-c constraints.txt -e '.[dev,opencl]'
	touch $(STAMP)

lint: $(STAMP)
	@failed=0; $(BIN)/ruff check . || failed=1; \
	$(BIN)/ruff format --check . || failed=1; \
	$(BIN)/python benchmarks/house.py --lint || failed=1; exit $$failed

typecheck: types-src types-tests

types-src: $(STAMP)
	@$(BIN)/mypy

types-tests: $(STAMP)
	@$(BIN)/mypy --config-file tests/mypy.ini

# Compiles the modules of the tests, which each process of `unit` would do for itself.
compiled: $(STAMP)
	@$(BIN)/python -m pytest --collect-only -qq >/dev/null 2>&1 || true

# Each process takes whole files: what a file makes once serves all its tests.
unit: $(STAMP)
	$(BIN)/python -m pytest -n auto --dist loadfile --no-loadscope-reorder $(ARGS)

# Also the tests, and the variants of tests, that repeat at length what others show in short.
test-thorough: $(STAMP)
	@$(MAKE) --no-print-directory test ARGS="--thorough $(ARGS)"

# Harris corner detection at full size: a schedule verified and measured, then compared with
# what the autoschedulers that come with Halide make of it. Some two minutes.
demo: $(STAMP)
	mkdir -p out
	$(BIN)/tilewright schedule examples/harris.py:harris --mode top \
		--records out/records.sqlite -o out/harris_schedule.py
	$(BIN)/tilewright compare examples/harris.py:harris \
		--records out/records.sqlite --report out/harris.html
	@echo
	@echo "The schedule is in out/harris_schedule.py, the report in out/harris.html."

# The schedules that one shot chooses for the programs, written where they have changed.
golden: $(STAMP)
	$(BIN)/python tests/halide/golden_schedules.py $(ARGS)

bench: $(STAMP)
	$(BIN)/python benchmarks/$(NAME).py $(ARGS)

# The pages that are made of results and examples, then the site in out/site, without the network.
docs: $(STAMP)
	$(BIN)/python benchmarks/make_docs.py
	$(BIN)/python benchmarks/make_gallery.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in out/site/index.html."

clean:
	rm -rf $(VENV) $(VERSIONS:%=.venv-%) build dist *.egg-info
