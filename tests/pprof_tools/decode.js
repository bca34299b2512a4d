// SPDX-License-Identifier: Apache-2.0
// Decodes a gzip profile with the npm package pprof-format and prints what a reader needs.
'use strict';
const fs = require('fs');
const zlib = require('zlib');
const { Profile } = require(process.argv[2] + '/node_modules/pprof-format');

const p = Profile.decode(zlib.gunzipSync(fs.readFileSync(process.argv[3])));
const str = (i) => p.stringTable.strings[Number(i)];
const functions = new Map(p.function.map((f) => [Number(f.id), str(f.name)]));
const locations = new Map(p.location.map((l) => [Number(l.id), l]));

console.log('type', str(p.sampleType[0].type), str(p.sampleType[0].unit));
console.log('types', p.sampleType.map((t) => str(t.type) + '/' + str(t.unit)).join(' '), 'default', str(p.defaultSampleType));
console.log('period', str(p.periodType.type), str(p.periodType.unit), Number(p.period));
for (const s of p.sample) {
	const frames = s.locationId.map((id) => {
		const l = locations.get(Number(id));
		return l.line.length ? functions.get(Number(l.line[0].functionId)) : '?';
	});
	const labels = s.label.map((l) => str(l.key) + '=' + (Number(l.str) ? str(l.str) : Number(l.num)));
	console.log('sample', s.value.map(Number).join(','), frames.join(';'), labels.join(' '));
}
