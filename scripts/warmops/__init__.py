"""The half of warmstack with effects: docker, drills, reports. Whatever can be computed lies in `warmplan`."""
