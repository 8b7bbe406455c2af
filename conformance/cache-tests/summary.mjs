// Judges results by the suite's own rules: `node summary.mjs SUITE name=results.json ...` prints JSON with one word for each test and program.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, ...programs] = process.argv.slice(2)
const load = file => import(pathToFileURL(path.join(suite, file)))
const tests = (await load('tests/index.mjs')).default
const { determineTestResult, resultTypes } = await load(fs.existsSync(path.join(suite, 'test-engine')) ? 'test-engine/lib/results.mjs' : 'lib/results.mjs')
const nameOf = type => Object.keys(resultTypes).find(name => resultTypes[name] === type)

const all = []
for (const group of tests) {
  for (const test of group.tests) {
    if (test.browser_only) continue
    const row = { group: group.name, id: test.id, kind: test.kind ?? 'required', results: {}, why: '' }
    for (const program of programs) {
      const [name, file] = program.split('=')
      const results = JSON.parse(fs.readFileSync(file))
      row.results[name] = nameOf(determineTestResult(tests, test.id, results))
      if (name === 'hearth' && results[test.id] !== true) row.why = (results[test.id] ?? []).join(': ')
    }
    all.push(row)
  }
}
console.log(JSON.stringify(all))
