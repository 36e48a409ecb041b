# The two commands of the README do all the set-up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
PY      = $(VENV)/bin/python
WORKERS ?= 2
# Most of a test is waiting for a process that dies, so twice as many as there are cores keep the cores busy.
TESTERS ?= 4
WORLDS ?= 300

.PHONY: run test test-slow nightly lint lock env data clean

env: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt development.lock
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "Python 3.10 to 3.13 is needed, $(PYTHON) is another (or is missing); choose one with: make PYTHON=python3.11 ..."; exit 1; }
	@test -x $(PY) || $(PYTHON) -m venv $(VENV) || { echo "no virtual environment could be made; on Debian: apt-get install python3-venv"; exit 1; }
	@$(PY) -m pip install -q --disable-pip-version-check --require-hashes -r development.lock && \
	 $(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev,stacks]' || \
	  { echo "the packages could not be installed; the package index must be reachable once (pip's message above says what failed)"; exit 1; }
	@touch $@

# Every development package in one version, with its hashes, for all Pythons and platforms.  torch is left out: each index has
# builds of its own under one version number, so no one hash fits; constraints.txt pins its version.
lock: env
	@echo "torch ; python_version < '0'" > $(VENV)/without-torch.txt
	$(PY) -m pip install -q --disable-pip-version-check uv
	$(PY) -m uv pip compile --quiet --upgrade --universal --python-version 3.10 --generate-hashes --no-header \
	  --overrides $(VENV)/without-torch.txt --extra dev --extra stacks -o development.lock pyproject.toml

data: env
	@test -f data/pairs.npz || $(PY) -m trainer synth --out data --train 640 --val 64 --bank 2000
	@test -f data/long/pairs.npz || $(PY) -m trainer synth --out data/long --train 2000 --val 8 --bank 100 --seq-len 20

# Three stories of a really dying (and a healthy) trainer, and their reports.
run: env data
	@for story in crash_isolation forked_miner healthy; do \
	  echo; echo "== $$story"; $(PY) -m matrix run $$story.yaml || exit $$?; \
	done

lint: env
	$(PY) -m ruff check .
	$(PY) -m mypy

# Thousands of real processes die here, beside whatever else the machine does.  What fails is asked once more, alone, and both
# answers are shown: what fails twice fails, what passes the second time is named as unsteady and is a fault to be mended.
define tier
	@$(PY) -m pytest -n $(TESTERS) -m $(1) || { test $$? -eq 1 || exit 1; \
	  echo; echo "== what failed, once more and alone; what passes now is unsteady"; \
	  $(PY) -m pytest -x -rp --last-failed --last-failed-no-failures none -m $(1); }
endef

test: env lint
	$(call tier,"not slow and not nightly")

test-slow: TESTERS = 3# they start trainers, browsers and clusters, which work themselves
test-slow: env
	$(call tier,"slow and not nightly")

# Full counts and the benchmarks, in parts; a part that is done is not run again (remove .nightly to start over).
nightly: env .nightly/tests .nightly/lowest .nightly/startup .nightly/doctor .nightly/overhead .nightly/sampling .nightly/cores .nightly/watch \
  .nightly/search .nightly/report .nightly/package .nightly/run .nightly/estimate .nightly/zoo

.nightly/tests:
	@mkdir -p .nightly
	$(PY) -m pytest -n $(TESTERS) -m "nightly" || test $$? -eq 5
	@touch $@

# The lowest version of each of the tool's own packages that pyproject.toml allows must do.
.nightly/lowest: pyproject.toml
	@mkdir -p .nightly
	$(PY) -m venv --clear .nightly/oldest
	$(PY) -m pip install -q --disable-pip-version-check uv
	$(PY) -m uv pip install -q --python .nightly/oldest/bin/python --resolution lowest-direct -e .
	$(PY) -m uv pip install -q --python .nightly/oldest/bin/python pytest pytest-xdist hypothesis pyte jsonschema setuptools detect-secrets
	.nightly/oldest/bin/python -m pytest -n $(TESTERS) -m "not slow and not nightly" tests/matrix tests/reports
	@touch $@

.nightly/search: benchmarks/search/__main__.py
	@mkdir -p .nightly
	$(PY) -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[peers]'
	$(PY) -m benchmarks.search --worlds $(WORLDS) --jobs $(WORKERS)
	@touch $@

.nightly/zoo: benchmarks/zoo/__main__.py benchmarks/zoo/planted.py
	@mkdir -p .nightly
	$(PY) -m benchmarks.zoo --anonymise
	$(PY) -m benchmarks.zoo.planted
	@touch $@

.nightly/%: benchmarks/%.py
	@mkdir -p .nightly
	$(PY) -m benchmarks.$*
	@touch $@

clean:
	rm -rf .nightly build dist *.egg-info
