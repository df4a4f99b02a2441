"""What is made of what ``trace`` tells, for people and other programs. Pure: no clock, no exporter, no trio.

Traces: ``attributes`` declares every span and attribute, ``spans`` builds them from records once an exchange is
over, ``producers`` finds whose records were delivered. ``net.traces`` hands them to OpenTelemetry's SDK.
"""
