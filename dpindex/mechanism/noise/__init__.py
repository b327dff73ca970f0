"""Noise laws: how exact integers become codes, what that promises and what codes say."""
