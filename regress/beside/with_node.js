// node-postgres over foreign tables and over heap copies: results, prepared statements, cursors, COPY, a pool, cancels.
//
// usage: node with_node.js JSON     prints 'ok NAME' or 'not ok NAME: WHY' for each test
// JSON: host, port, user, database, paths (of foreign tables and of heap copies), queries, byKey, keys, long, failing, tables
'use strict';
const assert = require('assert');
const { Client, Pool, types } = require('pg');
const Cursor = require('pg-cursor');
const { to: copyTo, from: copyFrom } = require('pg-copy-streams');
const { pipeline } = require('stream/promises');
const { Readable } = require('stream');

const given = JSON.parse(process.argv[2]);

function settings(path) {
  return { host: given.host, port: Number(given.port), user: given.user, database: given.database, options: `-c search_path=${path}`, statement_timeout: 300000 };
}

async function connected(path, action) {
  const client = new Client(settings(path));
  await client.connect();
  try {
    return await action(client);
  } finally {
    await client.end();
  }
}

// An action must return the same over foreign tables as over heap copies.
async function compare(action) {
  const found = [];
  for (const path of given.paths) found.push(await connected(path, action));
  assert.deepStrictEqual(found[0], found[1]);
  return found[0];
}

const allQueries = [...Object.values(given.queries), ...given.tables.map((name) => `SELECT * FROM ${name} ORDER BY id`)];

const tests = {
  async results() {
    const found = await compare(async (client) => {
      const answers = [];
      for (const query of allQueries) {
        // As texts, so that nothing is lost to JavaScript's numbers and dates.
        const text = await client.query({ text: query, rowMode: 'array', types: { getTypeParser: () => (value) => value } });
        answers.push([text.fields.map((field) => [field.name, field.dataTypeID, field.dataTypeModifier]), text.rows]);
        answers.push((await client.query({ text: query, values: [], binary: true, types: { getTypeParser: () => (value) => value } })).rows);
      }
      return answers;
    });
    assert.ok(found.length === 2 * allQueries.length);
  },

  async values() {
    await compare(async (client) => {
      const answers = [];
      for (const query of Object.values(given.queries)) answers.push((await client.query(query)).rows);
      return answers;
    });
  },

  async 'prepared statements'() {
    await compare(async (client) => {
      const answers = [];
      for (let round = 0; round < 2; round++) {
        for (const key of given.keys) {
          answers.push((await client.query({ name: 'by key', text: given.byKey, values: [key] })).rows);
          answers.push((await client.query({ name: 'many', text: 'SELECT o_orderkey, o_comment FROM orders WHERE o_orderkey = ANY($1) ORDER BY 1', values: [given.keys] })).rows);
        }
      }
      return answers;
    });
  },

  // A query that fails leaves the client as it was.
  async errors() {
    const found = await compare(async (client) => {
      const error = await client.query(given.failing).catch((reason) => reason);
      return [error.code, error.message, error.severity, (await client.query(given.queries.groups)).rows];
    });
    assert.strictEqual(found[0], '22012');
  },

  async cursors() {
    await compare(async (client) => {
      const answers = [];
      const cursor = client.query(new Cursor(given.queries.pages));
      for (;;) {
        const rows = await cursor.read(83);
        answers.push(rows);
        if (rows.length === 0) break;
      }
      const early = client.query(new Cursor(given.queries.window));
      answers.push(await early.read(5));
      await early.close();
      answers.push((await client.query(given.queries.groups)).rows);
      return answers;
    });
  },

  async copies() {
    await compare(async (client) => {
      let text = '';
      for await (const block of client.query(copyTo(`COPY (${given.queries.pages}) TO STDOUT (FORMAT csv, HEADER)`))) text += block;
      await client.query('CREATE TEMP TABLE keys (key bigint)');
      await pipeline(Readable.from(given.keys.map((key) => `${key}\n`)), client.query(copyFrom('COPY keys FROM STDIN')));
      const joined = await client.query('SELECT key, count(l_quantity) AS n FROM keys LEFT JOIN lineitem ON l_orderkey = key GROUP BY 1 ORDER BY 1');
      return [text, joined.rows];
    });
  },

  async 'a pool'() {
    const found = [];
    for (const path of given.paths) {
      const pool = new Pool({ ...settings(path), max: 6 });
      found.push(await Promise.all([0, 1, 2, 3].flatMap(() => Object.values(given.queries).map((query) => pool.query(query).then((result) => result.rows)))));
      await pool.end();
    }
    assert.deepStrictEqual(found[0], found[1]);
  },

  // Ended from a second connection while it runs; the session goes on.
  async cancels() {
    await connected(given.paths[0], async (client) => {
      const pid = (await client.query('SELECT pg_backend_pid() AS pid')).rows[0].pid;
      const outcome = client.query(given.long).then(() => 'rows', (error) => error.code);
      await connected(given.paths[0], async (other) => {
        for (;;) {
          const running = await other.query('SELECT count(*)::int AS n FROM pystachio.queries WHERE pid = $1 AND state = \'running\'', [pid]);
          if (running.rows[0].n > 0) break;
        }
        await other.query('SELECT pg_cancel_backend($1)', [pid]);
      });
      assert.strictEqual(await outcome, '57014');
      assert.strictEqual((await client.query('SELECT count(*)::int AS n FROM region')).rows[0].n, 5);
    });
  },
};

(async () => {
  for (const [name, test] of Object.entries(tests)) {
    try {
      await test();
      console.log(`ok ${name}`);
    } catch (error) {
      console.log(`not ok ${name}: ${String(error.message).split('\n').slice(0, 12).join(' | ')}`);
    }
  }
})();
