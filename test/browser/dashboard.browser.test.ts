/**
 * The operators' page in a real browser, on a real database: what comes from messages stays text, and buttons do what they say.
 */
import pg from 'pg'
import { chromium as playwright, type Browser, type Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { listDeadLetters } from '../../src/consumer/operate/dead-letters.ts'
import { redriveDeadLetters } from '../../src/consumer/operate/redrive.ts'
import { createDashboard, type DashboardService, type Viewer } from '../../src/dashboard/dashboard.ts'
import { listParked, redriveParked } from '../../src/outbox/operate/parked.ts'
import { pauseOutbox } from '../../src/outbox/operate/pause.ts'
import { fromPg } from '../../src/postgres/adapters/from-pg.ts'
import { eventually } from '../../src/testing/kit/eventually.ts'
import { startFaultProxy } from '../../src/testing/faults/fault-proxy.ts'
import { memory } from '../../src/transport/memory/memory.ts'
import { listen } from '../integrations/listen.ts'
import { chromiumPath } from '../setup/chromium.ts'
import { consumerFixture, published, videos, type ConsumerFixture } from '../setup/consumer-fixture.ts'
import { corpus } from '../setup/markup-corpus.ts'
import { outboxFixture, type OutboxFixture } from '../setup/outbox-fixture.ts'
import { testDatabase } from '../setup/test-database.ts'

/** A machine that is busy with other tests is slow, not broken. */
const patienceMs = 90_000
const database = await testDatabase()
const db = fromPg(database.pool)
const closing: (() => Promise<unknown>)[] = []
let browser: Browser
let isSignedOut = false
let nasty: readonly DashboardService[]

const nastyName = `shop/<img src=x onerror="globalThis.pwned='name'">?a=b&c#%`

beforeAll(async () => {
  const executablePath = await chromiumPath()
  // The package's own arguments are for a place without processes: one page, and no web security, which is what is tested here.
  browser = await playwright.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'], headless: true })
  nasty = await nastyServices()
}, 180_000)

afterEach(async () => {
  isSignedOut = false
  for (const close of closing.splice(0).toReversed()) await close()
})

afterAll(() => browser?.close())

/** Every string of the corpus as the id, title and error of a parked event and of a dead letter, and wherever else people type. */
async function nastyServices(): Promise<readonly DashboardService[]> {
  const { outbox } = await parkedEvents(...corpus)
  const { schema } = outbox.tables
  const errors = `update ${schema}.outbox_dispatch d set last_error = o.aggregate_id from ${schema}.outbox o where o.id = d.event_id`
  await db.query(errors)
  const [actor, reason, aggregateId] = corpus
  await pauseOutbox({ db, outbox, aggregateType: 'video', aggregateId, actor, reason })
  const catalog = await deadLetters(corpus, published('typed', 1, 'x', { event_type: reason }))
  const filter = { aggregateType: 'video', aggregateId: '__proto__' }
  await redriveDeadLetters({ db, schema: catalog.schema, filter, actor, reason })
  return servicesOf({ [nastyName]: schema, catalog: catalog.schema })
}

function servicesOf(schemas: Readonly<Record<string, string>>): readonly (DashboardService & { readonly schema: string })[] {
  return Object.entries(schemas).map(([name, schema]) => ({ name, db, schema }))
}

/** A service with one parked event of each id. */
async function parkedEvents(...ids: readonly string[]): Promise<OutboxFixture> {
  const fixture = await outboxFixture(db)
  for (const id of ids) await fixture.publish(id, id)
  await fixture.relay(memory({ rejects: () => true }), { maxAttempts: 1 }).once()
  await eventually(async () => (await listParked(db, fixture.outbox)).length === ids.length)
  return fixture
}

/** A service whose consumer gave up on each of these, with the title as the error. */
async function deadLetters(ids: readonly string[], ...others: readonly ReturnType<typeof published>[]): Promise<ConsumerFixture> {
  const fixture = await consumerFixture(db)
  const catalog = fixture.consumer({ maxAttempts: 1 }).on(videos.VideoPublished, async ({ data }) => {
    throw new Error(data.title)
  })
  const stop = fixture.start(catalog)
  await fixture.publish(...ids.map((id) => published(id, 1, id)), ...others)
  await eventually(async () => (await fixture.count('dead_letter')) === ids.length + others.length)
  await stop()
  return fixture
}

interface Visit {
  readonly page: Page
  readonly url: string
  /** Whatever the browser did not like, and every dialog that a script opened. */
  readonly complaints: string[]
}

/** Opens the page as ada, who may act, or as a guest. */
async function visit(services: readonly DashboardService[], { viewer = 'ada', path = '/', width = 1280 } = {}): Promise<Visit> {
  const authorize = (): Viewer | Response =>
    isSignedOut ? Response.redirect('https://login.example.com/', 302) : { name: viewer, mayAct: viewer === 'ada' }
  const server = await listen((...asked) => dashboard.listener(...asked))
  const dashboard = createDashboard({ services, authorize, origin: new URL(server.url).origin, path, payloads: true })
  closing.push(() => server.close())
  const context = await browser.newContext({ viewport: { width, height: 900 } })
  closing.push(() => context.close())
  const page = await context.newPage()
  page.setDefaultTimeout(patienceMs)
  const complaints: string[] = []
  page.on('console', (message) => void (message.type() === 'error' && complaints.push(message.text())))
  page.on('pageerror', (error) => void complaints.push(error.message))
  page.on('dialog', (dialog) => void complaints.push(dialog.message()))
  page.on('dialog', (dialog) => void dialog.dismiss())
  await page.exposeFunction('complain', (what: string) => void complaints.push(what))
  const watch = `addEventListener('securitypolicyviolation', ({ violatedDirective }) => complain('CSP: ' + violatedDirective))`
  await page.addInitScript(watch)
  const url = `${server.url}${path}`
  await page.goto(url)
  await page.locator('main .card').first().waitFor()
  return { page, url, complaints }
}

/** The view has come, and holds these strings as they are and not one element or address that is not the page's own. */
async function showsAsText(page: Page, title: string, strings: readonly string[]): Promise<void> {
  await page.getByRole('heading', { level: 2, name: title, exact: true }).waitFor()
  await eventually(async () => {
    const shown = (await page.textContent('main')) ?? ''
    expect(strings.filter((each) => !shown.includes(each))).toEqual([])
  })
  const foreign = 'main :is(img, script, svg, iframe, style, form:not(.find), textarea, b)'
  const handlers = '[onerror], [onload], [onfocus], [ontoggle], [onmouseover], [autofocus], [srcdoc]'
  expect(await page.locator(`${foreign}, body :is(${handlers}), :is(dialog, #toast) :is(img, script, svg)`).count()).toBe(0)
  const addresses = await page.locator('a').evaluateAll((links) => links.map((link) => String(link.getAttribute('href'))))
  expect(addresses.filter((address) => !address.startsWith('#/'))).toEqual([])
}

/** Presses Tab until the element with this name has the focus. */
async function tabTo(page: Page, name: string): Promise<void> {
  const focused = `(({ ariaLabel, textContent }) => ariaLabel ?? textContent)(document.activeElement)`
  for (let tabs = 0; tabs < 100; tabs += 1) {
    if ((await page.evaluate(focused)) === name) return
    await page.keyboard.press('Tab')
  }
  expect(await page.evaluate(focused)).toBe(name)
}

test('whatever is in messages, errors and reasons is shown as text in every view, and nothing of it runs', async () => {
  const { page, url, complaints } = await visit(nasty)
  const go = (hash: string): Promise<unknown> => page.goto(`${url}${hash}`)
  const subject = `video ${corpus[0]}, version 1`
  const catalog = { db, schema: nasty[1]?.schema ?? '' }
  await showsAsText(page, 'Services', [nastyName, ...corpus.slice(0, 3)])

  await page.locator('section.card').first().getByRole('link', { name: 'Parked events' }).click()
  await showsAsText(page, `Parked events of ${nastyName}`, corpus)
  await page.reload()
  await showsAsText(page, `Parked events of ${nastyName}`, corpus)
  await page.getByRole('button', { name: `Skip ${subject}`, exact: true }).click()
  expect(await page.textContent('#action-subject')).toBe(subject)
  await showsAsText(page, `Parked events of ${nastyName}`, corpus)
  await page.click('#action-cancel')
  await page.locator('tr', { hasText: subject }).locator('a.id').click()
  await showsAsText(page, 'Trace', [corpus[0], 'PARKED'])

  await go('#/letters/catalog')
  await page.click(`text=${corpus.length - 1} letters`)
  await showsAsText(page, 'Dead letters of catalog', corpus.slice(0, -1))
  await go('#/letters/catalog?reason=unknown_type')
  await showsAsText(page, 'Dead letters of catalog', [corpus[1]])
  for (const { id, aggregateId = '', error } of await listDeadLetters(catalog)) {
    await go(`#/letter/catalog/${id}`)
    const body = JSON.stringify({ title: aggregateId === 'typed' ? 'x' : aggregateId })
    const told = aggregateId === '__proto__' ? corpus.slice(0, 2) : []
    await showsAsText(page, `Dead letter ${id} of catalog`, [aggregateId, error, body, ...told])
  }

  await go('#/')
  await page.getByRole('button', { name: `Pause a stream of ${nastyName}`, exact: true }).click()
  await page.fill('[name=aggregateType]', corpus[5])
  await page.keyboard.press('Enter')
  await page.locator('#toast p', { hasText: `Paused: stream ${corpus[5]}.` }).waitFor()
  await showsAsText(page, 'Services', [`Paused: stream ${corpus[5]}`])
  await page.getByRole('button', { name: `Pause everything of ${nastyName}`, exact: true }).click()
  await page.keyboard.press('Enter')
  await page.getByRole('button', { name: 'Resume everything', exact: true }).click()
  await page.keyboard.press('Enter')
  await page.locator('#toast p', { hasText: 'Resumed: everything.' }).waitFor()
  expect(complaints).toEqual([])

  await page.fill('#find-id', corpus[7])
  await page.keyboard.press('Enter')
  await showsAsText(page, 'Trace', [corpus[7]])
  expect(complaints.filter((each) => !each.includes('404'))).toEqual([])
  expect(await page.evaluate('globalThis.pwned')).toBeUndefined()
})

test('by keyboard alone a parked event is redriven: the focus outlives refreshes, and the audit log has who and why', async () => {
  const { outbox, states } = await parkedEvents('a', 'b', 'c')
  const { schema } = outbox.tables
  const [above, chosen, below] = (await listParked(db, outbox)).map(({ aggregateId = '' }) => aggregateId)
  const { page, complaints } = await visit([{ name: 'shop', db, schema }])
  await tabTo(page, 'Parked events')
  await page.keyboard.press('Enter')
  const rows = page.locator('tbody tr')
  await eventually(async () => (await rows.count()) === 3)
  await tabTo(page, `Redrive video ${chosen}, version 1`)
  await page.evaluate('globalThis.before = document.activeElement')

  await redriveParked({ db, outbox, filter: { aggregateType: 'video', aggregateId: above ?? '' }, actor: 'somebody else' })
  await eventually(async () => (await rows.count()) === 2)
  expect(await page.evaluate('document.activeElement === globalThis.before')).toBe(true)

  await page.keyboard.press('Enter')
  expect(await page.getByRole('dialog', { name: 'Redrive' }).textContent()).toContain(`video ${chosen}, version 1`)
  await page.keyboard.type('topic was repaired')
  await page.keyboard.press('Enter')
  await page.locator('#toast p', { hasText: 'Due again: 1 event.' }).waitFor()
  await eventually(async () => (await rows.count()) === 1)
  expect(await rows.textContent()).toContain(`video ${below}, version 1`)
  await eventually(async () => (await page.evaluate('document.activeElement.tagName')) === 'H2')
  expect(await states()).toEqual({ [`${above} 1`]: 'RELEASED', [`${chosen} 1`]: 'RELEASED', [`${below} 1`]: 'PARKED' })
  const { rows: audited } = await db.query(`select actor, action, details from ${schema}.audit_log order by id desc limit 1`)
  const details = { reason: 'topic was repaired', events: [{ aggregateId: chosen }] }
  expect(audited).toMatchObject([{ actor: 'ada', action: 'outbox.redrive', details }])
  expect(complaints).toEqual([])
})

test('a dead letter is found by its group, read, and discarded only when that is confirmed', async () => {
  const fixture = await deadLetters(['x', 'y'], published('z', 1, 'z', { event_type: 'Unknown' }))
  const states = (): Promise<readonly object[]> =>
    fixture.query(`select aggregate_id as id, state from $schema.dead_letter order by 1`)
  const { page, complaints } = await visit(servicesOf({ catalog: fixture.schema }))
  await page.click('#findings a >> text=3 dead letters')
  await page.click('text=2 letters')
  const letters = page.locator('[aria-label=Letters] tbody tr')
  await eventually(async () => (await letters.count()) === 2)
  await letters.filter({ hasText: 'video y, version 1' }).locator('a').first().click()
  await page.getByText('A redrive now: It is applied').waitFor()

  const dialog = page.getByRole('dialog', { name: 'Discard' })
  const open = page.getByRole('button', { name: /^Discard letter/ })
  await open.click()
  expect(await dialog.textContent()).toContain('the effect never happens')
  // Cancel has the focus: Enter in haste is a no.
  await page.keyboard.press('Enter')
  await dialog.waitFor({ state: 'hidden' })
  expect(await open.evaluate((button) => button.matches(':focus'))).toBe(true)
  expect(await states()).toMatchObject([{ state: 'dead' }, { state: 'dead' }, { state: 'dead' }])

  await open.click()
  await page.fill('#action-reason', 'test data')
  await page.click('#action-verb')
  await page.locator('#toast p', { hasText: 'Discarded 1 dead letter.' }).waitFor()
  await page.locator('main .badge', { hasText: 'discarded' }).waitFor()
  expect(await page.locator('main button').count()).toBe(0)
  expect(await page.textContent('main')).toContain('by: ada, reason: test data')
  expect(await states()).toMatchObject([{ state: 'dead' }, { id: 'y', state: 'discarded' }, { state: 'dead' }])
  await page.goBack()
  await eventually(async () => (await letters.count()) === 1)
  expect(await letters.textContent()).toContain('video x, version 1')
  expect(complaints).toEqual([])
})

test('a viewer who may not act sees everything and no button that acts', async () => {
  const catalog = { db, schema: nasty[1]?.schema ?? '' }
  const [letter] = await listDeadLetters(catalog, { aggregateType: 'video', aggregateId: corpus[0] })
  const parked = `#/parked/${encodeURIComponent(nastyName)}`
  const counts = async ({ page, url }: Visit): Promise<readonly number[]> => {
    const found: number[] = []
    for (const view of ['#/', parked, '#/letters/catalog?consumer=catalog', `#/letter/catalog/${letter?.id}`]) {
      await page.goto(`${url}${view}`)
      await page.locator('main .data', { hasText: corpus[0] }).first().waitFor()
      found.push(await page.getByRole('button', { name: /^(Redrive|Skip|Discard|Pause|Resume)/ }).count())
    }
    return found
  }
  const guest = await visit(nasty, { viewer: 'guest' })
  expect(await counts(guest)).toEqual([0, 0, 0, 0])
  expect(await guest.page.textContent('#viewer')).toBe('guest · read only')
  const ada = await visit(nasty)
  expect((await counts(ada)).every((count) => count > 0)).toBe(true)
  expect(await ada.page.textContent('#viewer')).toBe('ada')
})

test('a service or a server that is away is told while the rest is shown, and the page recovers', async () => {
  const { hostname: host, port } = new URL(database.directUrl)
  const proxy = await startFaultProxy({ target: { host, port: Number(port) } })
  const pool = new pg.Pool({ connectionString: proxy.url(database.directUrl) })
  pool.on('error', () => {})
  closing.push(() => proxy.stop())
  closing.push(() => pool.end())
  const { schema } = (await outboxFixture(db)).outbox.tables
  const { page } = await visit([{ name: 'far', db: fromPg(pool), schema }, ...servicesOf({ near: schema })])
  const isFine = (): Promise<unknown> => page.locator('#verdict.ok', { hasText: 'All within limits' }).waitFor()
  await isFine()
  proxy.refuse()
  proxy.cut()
  await page.locator('#verdict', { hasText: '1 finding' }).waitFor()
  const both = `['#findings', '[aria-label=far] .error'].map((each) => document.querySelector(each)?.textContent)`
  await eventually(async () => {
    const [told, shown] = (await page.evaluate(both)) as readonly string[]
    return shown !== undefined && told === `far: ${shown}`
  })
  expect(await page.textContent('[aria-label=near]')).toContain('No relay is running.')
  proxy.heal()
  await isFine()
  expect(await page.locator('.error >> visible=true').count()).toBe(0)

  await page.context().setOffline(true)
  await eventually(async () => /^No answer\s+since \d+ s$/.test(await page.locator('#verdict').innerText()))
  expect(await page.textContent('[aria-label=near]')).toContain('No relay is running.')
  await page.context().setOffline(false)
  await isFine()
  expect(await page.locator('#silence').isHidden()).toBe(true)

  isSignedOut = true
  await page.locator('main .error', { hasText: 'You are not signed in any more.' }).waitFor()
  await page.getByRole('button', { name: 'Reload' }).waitFor()
})

test('under a path of its own and on a narrow screen: a trace by typing "/", and nothing sticks out of any view', async () => {
  const long = 'anIdThatNeverEnds'.repeat(16)
  const shop = await parkedEvents(long, 'short')
  const catalog = await deadLetters([long])
  const services = servicesOf({ shop: shop.outbox.tables.schema, catalog: catalog.schema })
  const { page, url, complaints } = await visit(services, { path: '/admin/waybill', width: 360 })
  expect(new URL(page.url()).pathname).toBe('/admin/waybill/')
  const fits = async (view: string, label: string): Promise<void> => {
    await page.goto(`${url}/#/${view}`)
    await page.locator(`[aria-label="${label}"]`, { hasText: long }).waitFor()
    expect({ view, width: await page.evaluate('document.documentElement.scrollWidth') }).toEqual({ view, width: 360 })
  }
  await fits('', 'Held keys')
  const [event] = await listParked(db, shop.outbox, { aggregateType: 'video', aggregateId: long })
  await page.keyboard.press('/')
  await page.keyboard.type(event?.eventId ?? '')
  await page.keyboard.press('Enter')
  await page.locator('[aria-label=Timeline] li', { hasText: /^\+0\.0 ms.*VideoPublished/ }).waitFor()
  await fits(`trace/${event?.eventId}`, 'Timeline')
  await fits('parked/shop', 'Parked events')
  await fits('letters/catalog?consumer=catalog', 'Letters')
  const [letter] = await listDeadLetters(catalog)
  await fits(`letter/catalog/${letter?.id}`, 'Body')
  expect(complaints).toEqual([])
})
