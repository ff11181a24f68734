// A service with a web framework, for the section warm-start of scripts/bench: service.js PORT, with express on NODE_PATH.
const express = require('express');

const application = express();
application.use(express.json());
application.use(express.urlencoded({ extended: true }));
application.get('/', (_, response) => response.type('text/plain').send(`squares ${[...Array(100).keys()].reduce((sum, n) => sum + n * n)}\n`));
application.listen(Number(process.argv[2]), '127.0.0.1');
