"""A model as a `.keras` file of Keras' own layers, and the check of it in safe mode.

For TensorFlow's interpreter alone: these modules import Keras. A file of stock layers loads wherever Keras is, without
any of our code, and without anything in it being run.
"""
