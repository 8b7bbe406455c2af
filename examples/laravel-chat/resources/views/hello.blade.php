<!doctype html>
<title>Hello</title>
<h1>Hello, {{ $name }}!</h1>
