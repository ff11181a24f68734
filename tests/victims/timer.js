// A timer of four seconds in a program that does nothing else: says how late it fires.
'use strict';
const { writeSync } = require('node:fs');
const MS = 4000;
const begun = process.hrtime.bigint();
setTimeout(() => {
  const waited = Number((process.hrtime.bigint() - begun) / 1000000n);
  writeSync(1, `timer waited ${waited} ms\n`);
  process.exitCode = 7;
}, MS);
writeSync(1, "ready\n");
