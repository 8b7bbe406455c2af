// Judges results of the suite: `node summary.mjs SUITE name=results.json ...` prints JSON with a word for each test and program: `pass`,
// `fail`, `setup` (the test could not be set up), or `needs` (a test on which it depends did not pass).
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, ...programs] = process.argv.slice(2)
const groups = (await import(pathToFileURL(path.join(suite, 'tests/index.mjs')))).default
const byId = new Map(groups.flatMap(group => group.tests.map(test => [test.id, test])))

function judge (results, id) {
  const result = results[id]
  if (result === undefined) return 'absent'
  const needed = byId.get(id)?.depends_on ?? []
  if (!needed.every(other => judge(results, other) === 'pass')) return 'needs'
  if (result === true) return 'pass'
  return result[0] === 'Setup' ? 'setup' : 'fail'
}

const rows = groups.flatMap(group => group.tests.filter(test => !test.browser_only).map(test => {
  const row = { group: group.name, id: test.id, kind: test.kind ?? 'required', results: {}, why: '' }
  for (const program of programs) {
    const [name, file] = program.split('=')
    const results = JSON.parse(fs.readFileSync(file))
    row.results[name] = judge(results, test.id)
    if (name === 'hearth' && Array.isArray(results[test.id])) row.why = results[test.id].join(': ')
  }
  return row
}))
console.log(JSON.stringify(rows))
