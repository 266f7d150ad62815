"""The half of warmstack with effects: docker, drills, reports. Whatever is computed lies in `warmplan`."""
