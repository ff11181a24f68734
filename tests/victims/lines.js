// Timers, promises and the thread pool (pbkdf2, zlib, files): each step depends on all before it.
'use strict';
const crypto = require('crypto');
const fs = require('fs/promises');
const zlib = require('zlib');
const { promisify } = require('util');
const { setTimeout: pause } = require('timers/promises');

const derive = promisify(crypto.pbkdf2);
const deflate = promisify(zlib.deflate);
const steps = Number(process.argv[2] || 80);
// As in victim.h: where a test wants the program to wait, and for which file.
const waitsAt = Number(process.env.CKPT_VICTIM_WAITS_AT || 0);
const isThere = (file) => fs.access(file).then(() => true, () => false);
const digest = (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');

async function main() {
  let state = digest('start');
  const kept = new Map();
  console.log('ready');
  for (let step = 0; step < steps; step++) {
    const keys = await Promise.all([1, 2, 3, 4].map((n) => derive(state, `salt ${n}`, 800, 32, 'sha256')));
    const packed = await deflate(Buffer.concat(keys).toString('hex').repeat(50));
    const own = await fs.readFile(__filename);
    state = digest(Buffer.concat([packed, own, ...keys]));
    kept.set(step, new Array(500).fill(state));
    kept.delete(step - 30);
    console.log(`step ${step} ${state.slice(0, 32)} ${kept.size}`);
    while (step + 1 === waitsAt && !(await isThere(process.env.CKPT_VICTIM_WAITS_FOR))) await pause(1);
    await pause(10);
  }
  console.log('verified');
  process.exitCode = 11;
}

main();
