//! Made pictures in all kinds of files, through the task as a worker runs it.

use crate::test_supervisor::answer_bytes;
use jpeg_encoder::Encoder;
use png::{BitDepth, ColorType};

/// What a PNG file has: width, height, its kind of colour, and its samples.
type Picture = (u32, u32, ColorType, Vec<u8>);

fn read(file: &[u8]) -> Picture {
    let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
    let mut samples = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut samples).unwrap();
    assert_eq!(frame.bit_depth, BitDepth::Eight);
    (frame.width, frame.height, frame.color_type, samples)
}

fn thumbnail(file: impl Into<crate::Bytes>) -> Picture {
    read(&answer_bytes("thumbnail", file).unwrap())
}

fn refusal(file: impl Into<crate::Bytes>) -> String {
    answer_bytes("thumbnail", file).unwrap_err()
}

/// A PNG file with these samples, as they are in the file.
fn png_file(size: (u32, u32), color: ColorType, depth: BitDepth, samples: &[u8]) -> Vec<u8> {
    png_with(size, color, depth, samples, |_| {})
}

fn png_with(
    (width, height): (u32, u32),
    color: ColorType,
    depth: BitDepth,
    samples: &[u8],
    with: impl FnOnce(&mut png::Encoder<'_, &mut Vec<u8>>),
) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, width, height);
    encoder.set_color(color);
    encoder.set_depth(depth);
    with(&mut encoder);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(samples).unwrap();
    writer.finish().unwrap();
    file
}

/// One color everywhere, so that what JPEG loses is nothing.
fn jpeg(width: u16, height: u16, with: impl FnOnce(&mut Encoder<&mut Vec<u8>>)) -> Vec<u8> {
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 100);
    with(&mut encoder);
    let samples: Vec<u8> = [128, 128, 128].repeat(usize::from(width) * usize::from(height));
    encoder.encode(&samples, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    file
}

/// `bytes` as a chunk of a PNG file.
fn chunk(kind: &[u8; 4], bytes: &[u8]) -> Vec<u8> {
    let mut crc = flate2::Crc::new();
    crc.update(kind);
    crc.update(bytes);
    let length = u32::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], kind, bytes, &crc.sum().to_be_bytes()].concat()
}

/// The head of a PNG file with pixels of 8 bits of grey, and no pixel.
fn head_alone(width: u32, height: u32) -> Vec<u8> {
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 0, 0, 0, 0]].concat();
    [b"\x89PNG\r\n\x1a\n", &chunk(b"IHDR", &head)[..]].concat()
}

#[test]
fn a_small_picture_is_the_same_pixel_for_pixel() {
    let samples = [0, 1, 2, 253, 254, 255];
    let same = thumbnail(png_file((3, 2), ColorType::Grayscale, BitDepth::Eight, &samples));
    assert_eq!(same, (3, 2, ColorType::Grayscale, samples.to_vec()));
    let colors = [255, 0, 0, 0, 255, 0];
    let same = thumbnail(png_file((2, 1), ColorType::Rgb, BitDepth::Eight, &colors));
    assert_eq!(same, (2, 1, ColorType::Rgb, colors.to_vec()));
}

#[test]
fn a_large_picture_keeps_its_shape_and_each_pixel_is_an_average() {
    // Columns of 0 and 200 in turn.
    let samples: Vec<u8> = (0..512 * 64).map(|place| if place % 2 == 0 { 0 } else { 200 }).collect();
    let (width, height, _, averages) =
        thumbnail(png_file((512, 64), ColorType::Grayscale, BitDepth::Eight, &samples));
    assert_eq!((width, height), (256, 32));
    assert!(averages.iter().all(|&average| average == 100));
}

#[test]
fn alpha_16_bits_few_bits_and_palettes_become_8_bits_a_sample() {
    let deep = png_file((2, 1), ColorType::Grayscale, BitDepth::Sixteen, &[0x12, 0x34, 0xff, 0xff]);
    assert_eq!(thumbnail(deep), (2, 1, ColorType::Grayscale, vec![0x12, 0xff]));
    let flat = png_file((8, 1), ColorType::Grayscale, BitDepth::One, &[0b1010_0001]);
    assert_eq!(thumbnail(flat), (8, 1, ColorType::Grayscale, vec![255, 0, 255, 0, 0, 0, 0, 255]));
    let through = [10, 0, 20, 128];
    let seen = thumbnail(png_file((2, 1), ColorType::GrayscaleAlpha, BitDepth::Eight, &through));
    assert_eq!(seen, (2, 1, ColorType::GrayscaleAlpha, through.to_vec()));
    let palette = |encoder: &mut png::Encoder<'_, &mut Vec<u8>>| {
        encoder.set_palette(vec![1, 2, 3, 4, 5, 6]);
    };
    let indexed = png_with((2, 1), ColorType::Indexed, BitDepth::Eight, &[1, 0], palette);
    assert_eq!(thumbnail(indexed), (2, 1, ColorType::Rgb, vec![4, 5, 6, 1, 2, 3]));
    let see_through = |encoder: &mut png::Encoder<'_, &mut Vec<u8>>| {
        palette(encoder);
        encoder.set_trns(vec![255, 0]);
    };
    let indexed = png_with((2, 1), ColorType::Indexed, BitDepth::Eight, &[1, 0], see_through);
    assert_eq!(thumbnail(indexed), (2, 1, ColorType::Rgba, vec![4, 5, 6, 0, 1, 2, 3, 255]));
}

#[test]
fn jpeg_files_of_all_kinds_are_read() {
    let expected =
        |width: u32, height: u32| (width, height, ColorType::Rgb, vec![128; 3 * (width * height) as usize]);
    assert_eq!(thumbnail(jpeg(17, 9, |_| {})), expected(17, 9));
    assert_eq!(thumbnail(jpeg(300, 600, |_| {})), expected(128, 256));
    assert_eq!(thumbnail(jpeg(64, 64, |encoder| encoder.set_progressive(true))), expected(64, 64));
    assert_eq!(thumbnail(jpeg(64, 64, |encoder| encoder.set_restart_interval(2))), expected(64, 64));
    let mut grey = Vec::new();
    Encoder::new(&mut grey, 100).encode(&[77; 64], 8, 8, jpeg_encoder::ColorType::Luma).unwrap();
    assert_eq!(thumbnail(grey), (8, 8, ColorType::Grayscale, vec![77; 64]));
    let mut cmyk = Vec::new();
    let encoder = Encoder::new(&mut cmyk, 100);
    encoder.encode(&[0; 4 * 64], 8, 8, jpeg_encoder::ColorType::Cmyk).unwrap();
    assert_eq!(thumbnail(cmyk), (8, 8, ColorType::Rgb, vec![255; 3 * 64]));
}

/// A camera that was turned says so in EXIF. The pixels are taken as they are in the file, and EXIF is not in the result.
#[test]
fn exif_is_ignored() {
    let turned = b"Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0";
    let file = jpeg(16, 8, |encoder| encoder.add_app_segment(1, turned.to_vec()).unwrap());
    let thumbnail = answer_bytes("thumbnail", file).unwrap();
    assert_eq!((read(&thumbnail).0, read(&thumbnail).1), (16, 8));
    assert!(!thumbnail.windows(4).any(|bytes| bytes == b"eXIf" || bytes == b"Exif"));
}

#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let samples: Vec<u8> = (0..64 * 64 * 3).map(|place| (place * 7 % 251) as u8).collect();
    let mut noisy = Vec::new();
    Encoder::new(&mut noisy, 90).encode(&samples, 64, 64, jpeg_encoder::ColorType::Rgb).unwrap();
    let progressive = jpeg(64, 64, |encoder| encoder.set_progressive(true));
    let png = png_file((64, 64), ColorType::Rgb, BitDepth::Eight, &samples);
    for (file, kind) in [(&noisy, "JPEG"), (&progressive, "JPEG"), (&png, "PNG")] {
        assert!(answer_bytes("thumbnail", file.clone()).is_ok());
        for length in (8..file.len() * 9 / 10).step_by(file.len() / 40 + 1) {
            let error = refusal(file[..length].to_vec());
            assert!(error.starts_with(&format!("the input is not a whole {kind} file")), "{length}: {error}");
        }
    }
}

#[test]
fn a_bomb_is_refused_by_its_head() {
    // If anything were unpacked, the message would be that the file is not whole.
    assert_eq!(
        refusal(head_alone(65_536, 1025)),
        "the picture has 65536 x 1025 pixels, at most 67108864 are taken"
    );
    assert!(refusal(head_alone(i32::MAX as u32, i32::MAX as u32)).contains("at most 67108864"));
    let mut jpeg = jpeg(8, 8, |_| {});
    let frame = jpeg.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
    jpeg[frame + 5..][..4].fill(0xff);
    assert_eq!(refusal(jpeg), "the picture has 65535 x 65535 pixels, at most 67108864 are taken");
}

#[test]
fn a_text_or_a_profile_that_unpacks_to_gigabytes_is_not_unpacked() {
    let mut zeroes = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::copy(&mut std::io::Read::take(std::io::repeat(0), 256 << 20), &mut zeroes).unwrap();
    let packed = zeroes.finish().unwrap();
    let named = |name: &[u8]| [name, b"\0\0", &packed].concat();
    let whole = png_file((1, 1), ColorType::Grayscale, BitDepth::Eight, &[9]);
    let bombs = [chunk(b"zTXt", &named(b"Comment")), chunk(b"iCCP", &named(b"profile"))].concat();
    // Behind the signature and the head.
    let file = [&whole[..33], &bombs, &whole[33..]].concat();
    assert_eq!(thumbnail(file), (1, 1, ColorType::Grayscale, vec![9]));
}

#[test]
fn other_files_are_refused() {
    for other in [&b""[..], b"GIF89a\x01\0\x01\0", b"\xff\xd8", b"\x89PNG", b"<svg/>", b"{}"] {
        assert_eq!(refusal(other.to_vec()), "the input is neither a PNG nor a JPEG file");
    }
}

proptest::proptest! {
    /// The worker lives on, and the answer is a picture or an error.
    #[test]
    fn a_file_that_is_damaged_anywhere_is_an_error_or_another_picture(
        place in 0_usize..10_000,
        byte: u8,
        is_jpeg: bool,
    ) {
        let samples: Vec<u8> = (0..32 * 32 * 3).map(|place| (place * 13 % 241) as u8).collect();
        let mut file = match is_jpeg {
            true => jpeg(32, 32, |encoder| encoder.set_progressive(byte % 2 == 0)),
            false => png_file((32, 32), ColorType::Rgb, BitDepth::Eight, &samples),
        };
        let place = place % file.len();
        file[place] = byte;
        match answer_bytes("thumbnail", file) {
            Ok(picture) => { read(&picture); }
            Err(message) => proptest::prop_assert!(!message.contains("panicked"), "{message}"),
        }
    }
}
