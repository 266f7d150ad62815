# Each target is one line: `make help` lists them. Variables act only when they stand on the make line, as in
# `make up MODEL=Org/Name PORT=8080`: what a shell exports under the same names is left alone.
MAKEFLAGS += --no-builtin-rules --no-print-directory
SHELL := /bin/sh
.DEFAULT_GOAL := help
targets := help doctor up roll restart drill load bench status verify logs down down-all clean-compile plan explain lock render images check test bench-cli docker-stop
.PHONY: $(targets)

quoted = '$(subst ','\'',$(value $(1)))'
# $(call option,MODEL,--model): nothing unless MODEL stands on the make line.
option = $(if $(filter command line,$(origin $(1))),$(2) $(call quoted,$(1)))
# $(call flag,VOLUMES,--volumes): yes gives the option, no (or nothing) gives none, anything else is refused.
flag = $(if $(filter command line,$(origin $(1))),$(call yes_or_no,$(1),$(2)))
yes_or_no = $(if $(filter-out yes no,$($(1)))$(word 2,$($(1))),$(error $(1)=$($(1)): say yes or no),$(if $(filter yes,$($(1))),$(2)))
known := MODEL ENV PORT WEBUI_PORT DRILL REPEAT EVENT CLIENTS SECONDS KINDS REPLACE_WEIGHTS PROJECT INSTALL_DOCKER LEVEL SERVICE VOLUMES OVERRIDE OFFLINE
given := $(foreach name,$(.VARIABLES),$(if $(filter command line,$(origin $(name))),$(name)))
unknown := $(filter-out $(known) PYTHON,$(given))
# $(call near,WORD,KNOWN): ` (did you mean …?)`, or nothing.
shell_word = '$(subst ','\'',$(1))'
near = $(shell scripts/nearest $(call shell_word,$(1)) $(2) 2>/dev/null)
$(if $(unknown),$(error $(foreach name,$(unknown),$(name): not a variable of this project$(call near,$(name),$(known));) there are $(known)))
# The commands get them as options; PYTHON alone is meant for the environment (see scripts/warm).
unexport $(known)

project = $(call option,PROJECT,--project)
docker = $(call option,INSTALL_DOCKER,--install-docker)
env = $(call option,ENV,--env)
target = $(project) $(env)
wish = $(env) $(call option,MODEL,--model) $(call option,PORT,--port) $(call option,WEBUI_PORT,--webui-port)

.DEFAULT:
	@echo $(call shell_word,error: there is no target $@$(call near,$@,$(targets))) >&2; echo "hint: make help lists them" >&2; exit 2

help: ## print the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20; echo; echo '  On the make line: $(known)'

doctor: ## check this host for an environment, each finding with its fix (ENV MODEL PROJECT)
	@scripts/warm doctor $(project) $(wish)

up: ## bring the stack up and say where to chat (ENV MODEL PORT WEBUI_PORT PROJECT REPLACE_WEIGHTS OVERRIDE INSTALL_DOCKER)
	@scripts/warm up $(project) $(wish) $(docker) $(call flag,REPLACE_WEIGHTS,--replace-weights) $(call option,OVERRIDE,--override)

roll: ## replace the engine by way of a second one on the same weights; no request is refused (PROJECT OVERRIDE)
	@scripts/warm roll $(target) $(call option,OVERRIDE,--override)

restart: ## recycle the engine and prove that it mapped the held weights (PROJECT)
	@scripts/warm restart $(target)

drill: ## rehearse failures, each with a declared expectation (DRILL REPEAT PROJECT)
	@scripts/warm drill $(target) $(call option,DRILL,--drill) $(call option,REPEAT,--repeat)

load: ## load the gateway with clients while an event happens, and judge what they felt (EVENT CLIENTS SECONDS REPEAT PROJECT)
	@scripts/warm load $(target) $(call option,EVENT,--event) $(call option,CLIENTS,--clients) $(call option,SECONDS,--seconds) $(call option,REPEAT,--repeat)

bench: ## time stock restarts and warm restarts side by side (KINDS REPEAT PROJECT)
	@scripts/warm bench $(target) $(call option,KINDS,--kinds) $(call option,REPEAT,--repeat)

status: ## say what runs, what is held and what is wrong (PROJECT)
	@scripts/warm status $(target)

verify: ## compare the plan with what runs; exit 1 on any difference (PROJECT)
	@scripts/warm verify $(target)

logs: ## follow the logs (PROJECT SERVICE)
	@scripts/warm logs $(target) $(call option,SERVICE,--service)

down: ## stop everything but the weight cache: the weights stay held (PROJECT)
	@scripts/warm down $(target)

down-all: ## stop everything and free the weights (PROJECT VOLUMES)
	@scripts/warm down $(target) --all $(call flag,VOLUMES,--volumes)

clean-compile: ## remove compiled kernels; no engine may run, and the weights stay held (PROJECT)
	@scripts/warm clean-compile $(target)

plan: ## print what an environment would run and the memory it needs (ENV MODEL)
	@scripts/warm plan $(wish)

explain: ## say field by field why an engine would or would not map the held weights (ENV MODEL PROJECT)
	@scripts/warm explain $(project) $(wish)

lock: ## resolve the model of an environment to its content, print old and new, render again (ENV OFFLINE)
	@scripts/warm lock $(env) $(call flag,OFFLINE,--offline)

render: ## write compose.yaml and plan.md of every environment (ENV)
	@scripts/warm render $(env)

images: ## build the images that are missing or changed (INSTALL_DOCKER)
	@scripts/warm images $(docker)

check: ## lint, formatting, types, and generated files up to date
	@scripts/warm --test check

test: ## run the tests that need no GPU, with all they need (LEVEL=unit for seconds, =long for more; INSTALL_DOCKER)
	@scripts/warm --test test $(call option,LEVEL,--level) $(docker)

bench-cli: ## time the commands that only look: each under 1 s, else exit 1 (ENV PROJECT REPEAT)
	@scripts/warm bench-cli $(target) $(call option,REPEAT,--repeat)

docker-stop: ## stop the Docker engine that `make up` started by hand
	@scripts/warm docker-stop
