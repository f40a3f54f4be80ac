# Everything runs in the project's own environment, made on first use.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: test lint typecheck unit demo bench docs clean

test: lint typecheck unit

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,opencl]'
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

typecheck: $(STAMP)
	$(BIN)/mypy

# Halide numbers names for the life of a process, and the tests of its room compare names: each
# file there gets a process of its own.
unit: $(STAMP)
	$(BIN)/python -m pytest --ignore=tests/halide
	set -e; for tests in tests/halide/test_*.py tests/halide/cpu tests/halide/gpu; do \
		echo "$$tests"; $(BIN)/python -m pytest $$tests; done

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

bench: $(STAMP)
	$(BIN)/python benchmarks/$(NAME).py $(ARGS)

docs: $(STAMP)
	$(BIN)/python benchmarks/make_docs.py

clean:
	rm -rf $(VENV) build dist *.egg-info
