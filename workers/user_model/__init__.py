"""Models that a function of the user's builds: found, called, checked, and made to look like one of our own.

    module.py       which function to call, with what: plain data, no framework
    entrypoint.py   importing the user's module and calling the function, with an error that names the place
    built.py        the model as either framework gives it: weights by name, and outputs for rows
    saved.py        a stored model (model.json of format 3, its weights, its code) built again, for predictions
    checking.py     whether a model that was just saved answers as it did
    names.py        weights by name, whatever numbers Keras gave its layers this time

What knows a framework is with the backends, `workers.backends.<framework>.user_model`, and is imported by name, in a
process that has the framework.
"""
